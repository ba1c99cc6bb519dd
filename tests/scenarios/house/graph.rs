//! Rules about dependencies, asked of cargo's own resolution.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use virtfleet_tests::image;

use super::{
    licence,
    rules::{AGENT_CRATES, DUPLICATES, IMPURE, LICENCES, PURE_CRATES},
    tree,
};

/// Resolved once for the target that ships, with every feature: what may be built, not only what is
/// built today.
static GRAPH: LazyLock<Metadata> = LazyLock::new(|| {
    MetadataCommand::new()
        .manifest_path(tree::root().join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .other_options(["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(String::from))
        .exec()
        .expect("cargo metadata: Cargo.lock is up to date and the registry's index can be read")
});

fn package(id: &PackageId) -> &'static Package {
    &GRAPH[id]
}

/// The packages that the resolution uses, each with those that it uses itself, through dependencies
/// of these kinds.
fn edges(kinds: &[DependencyKind]) -> BTreeMap<&'static PackageId, Vec<&'static PackageId>> {
    let resolve = GRAPH.resolve.as_ref().expect("a resolution");
    let used = |dep: &cargo_metadata::NodeDep| dep.dep_kinds.iter().any(|info| kinds.contains(&info.kind));
    let targets = |node: &'static cargo_metadata::Node| {
        node.deps
            .iter()
            .filter(|dep| used(dep))
            .map(|dep| &dep.pkg)
            .collect()
    };
    resolve
        .nodes
        .iter()
        .map(|node| (&node.id, targets(node)))
        .collect()
}

/// Every package that the resolution uses.
fn resolved() -> impl Iterator<Item = &'static Package> {
    let resolve = GRAPH.resolve.as_ref().expect("a resolution");
    resolve.nodes.iter().map(|node| package(&node.id))
}

#[test]
fn every_member_takes_the_workspace_lints() {
    for member in GRAPH.workspace_packages() {
        let text = fs::read_to_string(&member.manifest_path).unwrap();
        let lints = text
            .split("\n[lints]\n")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        assert_eq!(
            lints,
            Some("workspace = true"),
            "{}: [lints] workspace = true",
            member.manifest_path
        );
    }
}

#[test]
fn every_dependency_is_chosen_in_the_workspace() {
    for member in GRAPH.workspace_packages() {
        let text = fs::read_to_string(&member.manifest_path).unwrap();
        for section in text
            .split("\n[")
            .filter(|section| section.split(']').next().unwrap().ends_with("dependencies"))
        {
            for line in section
                .lines()
                .skip(1)
                .filter(|line| line.contains('=') && !line.starts_with('#'))
            {
                assert!(
                    line.contains("workspace = true"),
                    "{}: `{line}`: versions are chosen in the top Cargo.toml",
                    member.manifest_path
                );
            }
        }
    }
}

#[test]
fn what_decides_depends_on_nothing_that_acts() {
    let edges = edges(&[DependencyKind::Normal]);
    for (name, direct) in PURE_CRATES {
        let member = GRAPH
            .workspace_packages()
            .into_iter()
            .find(|member| member.name.as_str() == *name)
            .unwrap();
        let found: Vec<&str> = edges[&member.id]
            .iter()
            .map(|id| package(id).name.as_str())
            .collect();
        let (found, wanted): (BTreeSet<_>, BTreeSet<_>) =
            (found.into_iter().collect(), direct.iter().copied().collect());
        assert_eq!(
            found, wanted,
            "{name}: direct dependencies (left) and those allowed (right, PURE_CRATES)"
        );

        let mut seen = BTreeSet::new();
        let mut open = vec![(&member.id, (*name).to_owned())];
        while let Some((id, road)) = open.pop() {
            assert!(
                !IMPURE.contains(&package(id).name.as_str()),
                "{road}: a crate that only decides must not reach it"
            );
            for next in &edges[id] {
                if seen.insert(*next) {
                    open.push((next, format!("{road} → {}", package(next).name)));
                }
            }
        }
    }
}

#[test]
fn crates_of_the_agent_depend_on_each_other_one_way() {
    let prefix = "virtfleet-agent";
    let members = GRAPH.workspace_packages();
    let members = members.iter().filter(|member| member.name.starts_with(prefix));
    let mut found = BTreeMap::new();
    for member in members {
        let own = |name: &str| name.strip_prefix("virtfleet-agent-").map(str::to_owned);
        let dependencies = member.dependencies.iter();
        let uses: BTreeSet<String> = dependencies.filter_map(|other| own(&other.name)).collect();
        found.insert(member.name.to_string(), uses);
    }
    let allowed: BTreeMap<String, BTreeSet<String>> = AGENT_CRATES
        .iter()
        .map(|(name, uses)| {
            let uses = uses.iter().map(|other| (*other).to_owned());
            ((*name).to_owned(), uses.collect())
        })
        .collect();
    assert_eq!(found, allowed, "dependencies (left) and AGENT_CRATES (right)");
}

#[test]
fn every_licence_may_be_linked() {
    let mut refused = Vec::new();
    for package in resolved() {
        let name = format!("{} {}", package.name, package.version);
        let expression = image::licence(package).unwrap_or("none given");
        match licence::allowed(expression) {
            Ok(true) => {}
            Ok(false) => refused.push(format!("{name}: {expression}")),
            Err(error) => refused.push(format!("{name}: {error}")),
        }
    }
    assert!(
        refused.is_empty(),
        "not to be met with {LICENCES:?}:\n{}",
        refused.join("\n")
    );
}

#[test]
fn no_crate_comes_in_two_versions_without_a_reason() {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in resolved() {
        versions
            .entry(package.name.as_str())
            .or_default()
            .insert(package.version.to_string());
    }
    versions.retain(|_, versions| versions.len() > 1);
    let found: BTreeSet<&str> = versions.keys().copied().collect();
    let borne: BTreeSet<&str> = DUPLICATES.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        found, borne,
        "crates in several versions (left) and those explained in DUPLICATES (right): {versions:?}"
    );
}

#[test]
fn every_workspace_dependency_is_used_by_a_member() {
    let text = fs::read_to_string(tree::root().join("Cargo.toml")).unwrap();
    let section = text
        .split("[workspace.dependencies]\n")
        .nth(1)
        .unwrap()
        .split("\n[")
        .next()
        .unwrap();
    let offered = section
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim());
    let used: BTreeSet<&str> = GRAPH
        .workspace_packages()
        .into_iter()
        .flat_map(|member| &member.dependencies)
        .map(|dependency| dependency.rename.as_deref().unwrap_or(&dependency.name))
        .collect();
    let unused: Vec<&str> = offered.filter(|name| !used.contains(name)).collect();
    assert!(
        unused.is_empty(),
        "[workspace.dependencies] that no member takes: {unused:?}"
    );
}

/// What a package's library is called in source text, which need not be the package's name:
/// `webpki` of `rustls-webpki`.
fn crate_name(package: &str) -> String {
    let library = resolved()
        .filter(|found| found.name.as_str() == package)
        .flat_map(|found| &found.targets)
        .find(|target| target.is_lib() || target.is_proc_macro());
    library.map_or(package, |target| &target.name).replace('-', "_")
}

#[test]
fn every_dependency_of_a_member_is_named_in_its_sources() {
    let mut unused = Vec::new();
    for member in GRAPH.workspace_packages() {
        let folder = member.manifest_path.parent().unwrap();
        let nested: Vec<_> = GRAPH
            .workspace_packages()
            .into_iter()
            .filter_map(|other| other.manifest_path.parent())
            .filter(|other| *other != folder && other.starts_with(folder))
            .collect();
        let own =
            |path: &Path| path.starts_with(folder) && !nested.iter().any(|other| path.starts_with(other));
        let sources: String = tree::sources()
            .into_iter()
            .filter(|(path, _)| own(path))
            .map(|(_, text)| text)
            .collect();
        for dependency in &member.dependencies {
            let name = dependency
                .rename
                .clone()
                .unwrap_or_else(|| crate_name(&dependency.name));
            if !sources.contains(&name) {
                unused.push(format!("{}: {}", member.name, dependency.name));
            }
        }
    }
    assert!(
        unused.is_empty(),
        "dependencies that no source file names:\n{}",
        unused.join("\n")
    );
}

/// `make fuzz` builds its own crate with `--locked`, which nothing else here does.
#[test]
fn the_lock_file_of_fuzzing_knows_what_members_depend_on() {
    let text = fs::read_to_string(tree::root().join("tests/fuzz/Cargo.lock")).unwrap();
    let mut members = 0;
    for entry in text.split("[[package]]\n") {
        let name = entry.lines().find_map(|line| line.strip_prefix("name = "));
        let mut workspace = GRAPH.workspace_packages().into_iter();
        let member = workspace.find(|member| name == Some(&format!("{:?}", member.name.as_str())));
        let Some(member) = member else { continue };
        let locked: BTreeSet<&str> = entry
            .lines()
            .filter_map(|line| line.strip_prefix(" \"")?.split(['"', ' ']).next())
            .collect();
        let declared: BTreeSet<&str> = member
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .map(|dependency| dependency.name.as_str())
            .collect();
        assert_eq!(
            locked, declared,
            "{}: tests/fuzz/Cargo.lock (left) is behind: cargo metadata --manifest-path tests/fuzz/Cargo.toml",
            member.name
        );
        members += 1;
    }
    assert!(members >= 2, "{members} members in tests/fuzz/Cargo.lock");
}
