//! Imports between the modules of one crate run one way. Re-exports are followed: a module depends
//! on the file that defines what it uses.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item, UseTree, Visibility};

use super::tree;

/// A module's path in its crate: `["disks", "plan"]`.
type ModulePath = Vec<String>;

/// What one source file holds, without its tests.
#[derive(Default)]
struct Module {
    /// Path of the file in the tree.
    file: String,
    /// Items that the file defines.
    defined: BTreeSet<String>,
    /// Imported names, with the path that each stands for.
    imported: BTreeMap<String, Vec<String>>,
    /// Those of them that are only passed on (`pub use`), as far as the code does not name them.
    passed_on: BTreeSet<String>,
    /// Paths of imports without a name: traits (`as _`) and globs.
    unnamed: Vec<Vec<String>>,
    /// Modules below this one that are imported whole (`use child::*`).
    globs: Vec<Vec<String>>,
    /// Paths in the code: `["super", "plan", "Step"]`, or one name.
    used: BTreeSet<Vec<String>>,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        text.contains("cfg") && text.contains("test") && !text.contains("not (test)")
    })
}

/// Name and attributes of an item that can be imported.
fn named(item: &Item) -> (Option<String>, &[Attribute]) {
    let (name, attributes) = match item {
        Item::Const(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Enum(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Fn(item) => (Some(item.sig.ident.to_string()), &item.attrs),
        Item::Macro(item) => (item.ident.as_ref().map(ToString::to_string), &item.attrs),
        Item::Static(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Struct(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Trait(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Type(item) => (Some(item.ident.to_string()), &item.attrs),
        Item::Impl(item) => (None, &item.attrs),
        Item::Mod(item) => (None, &item.attrs),
        Item::Use(item) => (None, &item.attrs),
        _ => return (None, &[]),
    };
    (name, attributes)
}

impl Module {
    fn parse(file: &str, text: &str) -> Self {
        let mut module = Self {
            file: file.to_owned(),
            ..Self::default()
        };
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        for item in &parsed.items {
            let (name, attributes) = named(item);
            if is_test(attributes) {
                continue;
            }
            module.defined.extend(name);
            match item {
                Item::Use(item) => {
                    let before: BTreeSet<String> = module.imported.keys().cloned().collect();
                    module.import(&mut Vec::new(), &item.tree);
                    if !matches!(item.vis, Visibility::Inherited) {
                        let names = module.imported.keys().filter(|name| !before.contains(*name));
                        module.passed_on.extend(names.cloned());
                    }
                }
                Item::Mod(item) if item.content.is_none() => {}
                other => module.paths(other.to_token_stream()),
            }
        }
        module
    }

    fn import(&mut self, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                self.import(path, &tree.tree);
                path.pop();
            }
            UseTree::Name(tree) => {
                let name = tree.ident.to_string();
                let mut whole = path.clone();
                if name == "self" {
                    let name = whole.last().cloned().unwrap_or_default();
                    self.imported.insert(name, whole);
                } else {
                    whole.push(name.clone());
                    self.imported.insert(name, whole);
                }
            }
            UseTree::Rename(tree) => {
                let mut whole = path.clone();
                whole.push(tree.ident.to_string());
                if tree.rename == "_" {
                    self.unnamed.push(whole);
                } else {
                    self.imported.insert(tree.rename.to_string(), whole);
                }
            }
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    self.import(path, tree);
                }
            }
        }
    }

    /// Collects `a::b::C` from tokens, also from those in macros.
    fn paths(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::<String>::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 && !path.is_empty() {
                        self.used.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && colons < 2 => colons += 1,
                TokenTree::Group(group) => {
                    self.used.insert(std::mem::take(&mut path));
                    colons = 0;
                    self.paths(group.stream());
                }
                _ => {
                    self.used.insert(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.used.insert(path);
    }
}

/// The modules of one crate.
struct Crate(BTreeMap<ModulePath, Module>);

impl Crate {
    /// The module whose file defines what `path` names, as seen from `from`. None: something
    /// outside of the crate, or a module itself.
    fn definer(&self, from: &[String], path: &[String], depth: usize) -> Option<&Module> {
        let (first, rest) = path.split_first()?;
        if depth > 16 {
            return None;
        }
        let module = self.0.get(from)?;
        match first.as_str() {
            "crate" => self.definer(&[], rest, depth + 1),
            "self" => self.definer(from, rest, depth + 1),
            "super" => self.definer(from.split_last()?.1, rest, depth + 1),
            name => {
                if module.defined.contains(name) {
                    return Some(module);
                }
                let child: ModulePath = from.iter().chain([first]).cloned().collect();
                if self.0.contains_key(&child) {
                    return self.definer(&child, rest, depth + 1);
                }
                if let Some(target) = module.imported.get(name) {
                    if target == path {
                        return None;
                    }
                    let whole: Vec<String> = target.iter().chain(rest).cloned().collect();
                    return self.definer(from, &whole, depth + 1);
                }
                let through = |glob: &Vec<String>| {
                    let whole: Vec<String> = glob.iter().chain(path).cloned().collect();
                    (whole != path)
                        .then(|| self.definer(from, &whole, depth + 1))
                        .flatten()
                };
                module.globs.iter().find_map(through)
            }
        }
    }

    /// The files that each file uses, with one name that it takes from each.
    fn edges(&self) -> BTreeMap<&str, BTreeMap<&str, String>> {
        let mut edges = BTreeMap::<&str, BTreeMap<&str, String>>::new();
        for (path, module) in &self.0 {
            let used = module.used.iter().filter(|name| !name.is_empty());
            for name in used.chain(&module.unnamed) {
                // A single name is a local one, or a method, unless it was imported. That of a
                // function that is passed on is one of a local variable or a field.
                if name.len() == 1 {
                    let is_type = name[0].starts_with(char::is_uppercase);
                    let is_imported = module.imported.contains_key(&name[0]) || !module.globs.is_empty();
                    if !is_imported || (module.passed_on.contains(&name[0]) && !is_type) {
                        continue;
                    }
                }
                if let Some(definer) = self.definer(path, name, 0)
                    && definer.file != module.file
                {
                    let taken = edges.entry(&module.file).or_default();
                    taken.entry(&definer.file).or_insert_with(|| name.join("::"));
                }
            }
        }
        edges
    }
}

/// Every crate of the workspace with its folder.
fn crates() -> BTreeMap<String, Crate> {
    let mut crates = BTreeMap::<String, Crate>::new();
    for (path, text) in tree::sources() {
        let path = path.strip_prefix(tree::root()).unwrap();
        let path = path.to_str().unwrap();
        let Some((folder, module)) = path.split_once("src/") else {
            continue;
        };
        let is_test = module
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "bin" | "fixtures.rs"))
            || module.ends_with("_tests.rs")
            || module == "main.rs";
        if is_test {
            continue;
        }
        let module = module.strip_suffix(".rs").unwrap();
        let module = module.strip_suffix("/mod").unwrap_or(module);
        let parts = module.split('/').filter(|part| *part != "lib").map(str::to_owned);
        let known = crates
            .entry(folder.to_owned())
            .or_insert_with(|| Crate(BTreeMap::new()));
        known.0.insert(parts.collect(), Module::parse(path, &text));
    }
    crates
}

/// Groups of files that use each other in a circle (strongly connected components).
fn circles<'a>(edges: &BTreeMap<&'a str, BTreeMap<&'a str, String>>) -> BTreeSet<Vec<&'a str>> {
    let reach = |from: &'a str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            for next in edges.get(file).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(*next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges.keys().map(|file| (*file, reach(file))).collect();
    let mut found = BTreeSet::new();
    for (file, reaches) in &reached {
        let back = |other: &&&str| reached.get(*other).is_some_and(|back| back.contains(file));
        let circle: Vec<&str> = reaches.iter().filter(back).copied().collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found
}

#[test]
fn modules_of_a_crate_import_each_other_one_way() {
    let (mut found, mut files) = (Vec::new(), 0);
    for modules in crates().into_values() {
        files += modules.0.len();
        let edges = modules.edges();
        for circle in circles(&edges) {
            found.push(format!("{} files use each other:", circle.len()));
            for file in &circle {
                let uses = edges.get(file).into_iter().flatten();
                for (other, name) in uses.filter(|(other, _)| circle.contains(other)) {
                    found.push(format!("  {file} -> {other}: {name}"));
                }
            }
        }
    }
    assert!(files > 500, "only {files} modules were read");
    assert!(
        found.is_empty(),
        "move what both sides need into a file of its own\n{}",
        found.join("\n")
    );
}

#[test]
fn a_circle_through_a_re_export_is_found() {
    let module = |file: &str, text: &str| Module::parse(file, text);
    let path = |text: &str| {
        text.split('/')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let modules = BTreeMap::from([
        (
            path(""),
            module("lib", "mod a; mod b; pub use a::A; #[cfg(test)] use b::x as y;"),
        ),
        (
            path("a"),
            module("a", "use super::b; pub struct A; fn f() { b::g() }"),
        ),
        (
            path("b"),
            module("b", "use crate::A; pub fn g() -> Option<A> { None }"),
        ),
        (
            path("c"),
            module("c", "use crate::A; use super::*; fn h(a: A) {}"),
        ),
    ]);
    let modules = Crate(modules);
    let edges = modules.edges();
    assert_eq!(circles(&edges), BTreeSet::from([vec!["a", "b"]]));
    assert_eq!(edges["c"].keys().copied().collect::<Vec<_>>(), ["a"]);
}
