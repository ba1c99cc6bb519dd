//! Links between pages: each leads to a file and heading that exist, and docs/README.md leads to
//! each page.

use std::collections::{BTreeMap, BTreeSet};

use super::{docs, tree};

/// Targets of the links in a page, without those in code, those to other hosts, and without titles.
fn links(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let outside_of_code = line.split('`').step_by(2);
        let targets = outside_of_code.flat_map(|part| part.split("](").skip(1));
        found.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0)));
    }
    found.retain(|target| !target.contains("://") && !target.starts_with("mailto:"));
    found
}

/// The file to which a link of a page leads, from the root of the project.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor that a heading gets, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

/// What is wrong with a link; none if nothing is.
fn fault(pages: &BTreeMap<String, String>, page: &str, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() {
        page.to_owned()
    } else {
        resolve(page, file)
    };
    if !tree::root().join(&file).exists() {
        return Some(format!("{page}: {target}: there is no {file}"));
    }
    let text = pages.get(&file)?;
    let is_there = heading.is_empty() || anchors(text).contains(heading);
    (!is_there).then(|| format!("{page}: {target}: {file} has no such heading"))
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let pages: BTreeMap<_, _> = docs::pages().into_iter().collect();
    let faults: Vec<_> = pages
        .iter()
        .flat_map(|(page, text)| links(text).into_iter().map(move |target| (page, target)))
        .filter_map(|(page, target)| fault(&pages, page, target))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_link_to_nothing_is_found() {
    let text = "# A page\n\n[a](b.md) `[c](d.md)` [e](https://f/g.md)\n```\n[h](i.md)\n```\n[j](#a-page)\n";
    assert_eq!(links(text), ["b.md", "#a-page"]);
    let pages = BTreeMap::from([("docs/README.md".to_owned(), text.to_owned())]);
    let fault = |target| fault(&pages, "docs/README.md", target);
    assert_eq!(fault("#a-page"), None);
    assert_eq!(fault("../README.md"), None);
    assert!(fault("b.md").is_some_and(|text| text.contains("no docs/b.md")));
    assert!(fault("#another").is_some_and(|text| text.contains("no such heading")));
}

#[test]
fn the_table_of_contents_leads_to_every_page() {
    let pages = docs::pages();
    let contents = pages.iter().find(|(page, _)| page == "docs/README.md");
    let listed: BTreeSet<String> = contents
        .into_iter()
        .flat_map(|(page, text)| links(text).into_iter().map(|target| resolve(page, target)))
        .collect();
    // A folder is listed as a whole.
    let is_listed = |page: &str| {
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        page == "README.md" || page == "docs/README.md" || listed.contains(page) || listed.contains(folder)
    };
    let missing: Vec<_> = pages
        .iter()
        .filter(|(page, _)| !is_listed(page))
        .map(|(page, _)| page)
        .collect();
    assert!(missing.is_empty(), "docs/README.md does not link to {missing:?}");
}
