//! Checks that documents name existing files, dependencies and sections of the contract.

use std::collections::{BTreeMap, BTreeSet};

use crate::{crates, read, root, source_files};

/// Returns the references to the contract in comments: the text after `contract: `.
fn cited(text: &str) -> Vec<String> {
    let joined = text.lines().map(str::trim_start).fold(String::new(), |mut all, line| {
        let is_comment = line.starts_with("//");
        all.push_str(if is_comment { " " } else { "\n" });
        all.push_str(line.trim_start_matches(['/', '!', ' ']));
        all
    });
    let ends = |c: char| matches!(c, ',' | ')' | '.' | ';' | ':' | '\n' | '`' | '|');
    let citations = joined.split("contract: ").skip(1).filter(|rest| rest.starts_with(char::is_uppercase));
    citations.map(|rest| rest.split(ends).next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn references_to_the_contract_name_its_sections() {
    let contract = read("docs/contract.md");
    let sections: Vec<&str> = contract.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, text) in source_files(&root().join("crates")) {
        for citation in cited(&text) {
            count += 1;
            let begins = |section: &&str| {
                section.strip_prefix(&*citation).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if !sections.iter().any(begins) {
                wrong.push(format!("{}: {citation}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty() && count > 50, "{count} citations, these lead nowhere: {wrong:#?}");
}

/// Returns true if a dependency is a crate of the workspace.
fn is_ours(dependency: &str) -> bool {
    dependency.starts_with("isobar") || crates().iter().any(|name| name == dependency)
}

/// Returns the dependencies of the workspace and its tests, inherited from the workspace or not.
fn dependencies() -> BTreeSet<String> {
    let mut members: Vec<String> = crates().into_iter().map(|name| format!("crates/{name}/Cargo.toml")).collect();
    members.push("bench/Cargo.toml".to_owned());
    let mut found = BTreeSet::new();
    for member in members {
        let manifest: toml::Table = read(&member).parse().unwrap();
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let names = manifest.get(kind).and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
            found.extend(names.filter(|name| !is_ours(name)).cloned());
        }
    }
    found
}

#[test]
fn dependency_has_one_documented_reason() {
    let document = read("docs/dependencies.md");
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for row in document.lines().filter_map(|line| line.strip_prefix("| `")) {
        let names = row.split(" | ").next().unwrap_or_default().split('`').step_by(2);
        names.filter(|name| !name.is_empty()).for_each(|name| *reasons.entry(name.to_owned()).or_default() += 1);
    }
    let given: BTreeSet<String> = reasons.keys().cloned().collect();
    let used = dependencies();
    assert_eq!(given, used, "docs/dependencies.md against the manifests");
    let twice: Vec<_> = reasons.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "one reason for each: {twice:?}");
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let declared = workspace["workspace"]["dependencies"].as_table().unwrap().keys();
    let unused: Vec<_> = declared.filter(|name| !is_ours(name) && !used.contains(*name)).collect();
    assert!(unused.is_empty(), "no crate uses {unused:?}");
}

/// Returns the Rust files that a text names in backquotes.
fn named_files(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect()
}

/// Returns all Rust files, tests included, in the form of the documents: without `src`.
fn all_files() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("bench")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(format!("/{}", path.to_str().unwrap().replace("/src/", "/"))),
            }
        }
    }
    found
}

// Holds: c12.readme
#[test]
fn commands_of_the_readme_are_targets_of_the_makefile() {
    let (readme, makefile) = (read("README.md"), read("Makefile"));
    for target in ["run", "test"] {
        assert!(readme.lines().any(|line| line.starts_with(&format!("make {target} "))), "{target}");
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "{target}");
    }
}

#[test]
fn files_named_by_documents_exist() {
    let files = all_files();
    let mut wrong = Vec::new();
    for document in
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/mechanisms.md", "docs/limits.md", "docs/reliability.md"]
    {
        let text = read(document);
        for name in named_files(&text) {
            let end = format!("/{}", name.replace("/src/", "/"));
            if !files.iter().any(|file| file.ends_with(&end)) {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "no such file: {wrong:#?}");
}

/// Checks that the heading of a walk states the number of files in its steps.
#[test]
fn walks_state_their_number_of_files() {
    let architecture = read("ARCHITECTURE.md");
    let mut walks = 0;
    for section in architecture.split("\n## ").skip(1) {
        let (heading, steps) = section.split_once('\n').unwrap();
        let Some(count) = heading.strip_suffix(" files)").and_then(|rest| rest.rsplit_once('(')) else { continue };
        let passed: BTreeSet<&str> = named_files(steps).into_iter().collect();
        assert_eq!(count.1, passed.len().to_string(), "{heading}: {passed:#?}");
        walks += 1;
    }
    assert!(walks >= 3, "{walks} walks tell how many files they pass");
}

/// Checks that CONTRIBUTING names every file which its sample operation touches, and no more than six.
#[test]
fn sample_operation_touches_at_most_six_files() {
    let contributing = read("CONTRIBUTING.md");
    let section = between(&contributing, "\n## Add an operation\n", "\n## ");
    let named: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let folders = crates().into_iter().map(|name| format!("crates/{name}/src"));
    let files =
        folders.chain(["crates/server/tests/scenes".to_owned()]).flat_map(|path| source_files(&root().join(path)));
    let touched = files.filter(|(_, text)| text.contains("view_update") || text.contains("/v2/views/{id}"));
    let touched: Vec<String> = touched
        .map(|(path, _)| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .filter(|path| !named.contains(path.as_str()))
        .collect();
    assert!(touched.is_empty() && (5..=6).contains(&named.len()), "{named:?} does not name {touched:?}");
}

/// Returns the text between two others, which must exist.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0
}

#[test]
fn documented_filters_match_those_of_the_code() {
    let declared: BTreeSet<&str> = isobar_hub::DeviceField::names().collect();
    for (file, begin, end) in [
        ("docs/contract.md", "with data's operators on ", " and meta.<path>"),
        ("docs/api-guide.md", "in the form of those of stored values: on ", ", and any path beneath `meta`"),
        ("console/src/lib/filters.ts", "export const FIELDS = [", "]"),
    ] {
        let text = read(file);
        let told = between(&text, begin, end).split(',').map(|name| name.trim().trim_matches(['`', '\'']));
        let told = told.filter(|name| !name.is_empty());
        assert_eq!(told.collect::<BTreeSet<_>>(), declared, "{file}");
    }
}
