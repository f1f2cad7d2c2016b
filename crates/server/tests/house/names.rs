//! Checks that a name is declared once in a crate, and a word of the glossary once in all crates.

use std::collections::BTreeMap;

use crate::limits::place_of;
use crate::{crates, read, root, source_files};

/// Names that many files of a crate share by design: each element's shape, and a module's own `Result`.
const SHARED_NAMES: [&str; 2] = ["SHAPE", "Result"];

/// Types named like a word of the glossary that occur in a second crate, with that crate: the design element for
/// notifications, and the owner of counted bytes in the queue.
const ALSO_IN: [(&str, &str); 2] = [("Notification", "design"), ("Tenant", "store")];

/// Returns the kind and name that a line declares: constants, aliases and types. An indented constant or alias belongs
/// to a trait or function and is ignored; an indented type may be that of an inline module.
fn declared(line: &str) -> Option<(&str, &str)> {
    let item = line.trim_start();
    let words = item.strip_prefix("pub ").or_else(|| item.strip_prefix("pub(")?.split_once(") ").map(|(_, rest)| rest));
    let words = words.unwrap_or(item);
    let (kind, rest) = words.strip_prefix("unsafe ").unwrap_or(words).split_once(' ')?;
    let rest = rest.strip_prefix("mut ").unwrap_or(rest);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let is_named = match kind {
        "struct" | "enum" | "trait" | "union" => true,
        "const" | "static" | "type" => item.len() == line.len(),
        _ => false,
    };
    (is_named && !["fn", "unsafe", "_", ""].contains(&name)).then_some((kind, name))
}

/// Returns the declarations of a crate: kind, name and file.
fn declared_in(room: &str) -> Vec<(String, String, String)> {
    let files = source_files(&root().join("crates").join(room).join("src"));
    let of_file = files.iter().flat_map(|(path, text)| {
        text.lines().filter_map(declared).map(|(kind, name)| (kind.to_owned(), name.to_owned(), place_of(path)))
    });
    of_file.collect()
}

#[test]
fn names_of_constants_and_types_are_unique_in_a_crate() {
    let mut twice = Vec::new();
    for room in crates().into_iter().filter(|name| name != "power") {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let declared = declared_in(&room);
        for (_, name, place) in declared.into_iter().filter(|(_, name, _)| !SHARED_NAMES.contains(&name.as_str())) {
            if let Some(before) = seen.insert(name.clone(), place.clone()) {
                twice.push(format!("{name} in {before} and {place}"));
            }
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
}

/// Returns the words of the glossary in the spelling of types.
fn glossary() -> Vec<String> {
    let architecture = read("ARCHITECTURE.md");
    let rows = architecture.split("## Glossary").nth(1).unwrap_or_default().lines();
    let cells = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next().map(str::to_owned));
    let words: Vec<String> = cells
        .flat_map(|cell| {
            let words = cell.split([',', ';', '(']).map(|word| word.trim().to_owned()).collect::<Vec<_>>();
            words.into_iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty())
        })
        .collect();
    words.iter().map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

#[test]
fn word_of_the_glossary_names_one_type() {
    let words = glossary();
    assert!(words.len() > 30 && words.contains(&"Plan".to_owned()), "{words:?}");
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for room in crates().into_iter().filter(|name| name != "power") {
        for (kind, name, place) in declared_in(&room) {
            let is_type = !["const", "static"].contains(&kind.as_str());
            if is_type && words.contains(&name) && !ALSO_IN.contains(&(name.as_str(), room.as_str())) {
                seen.entry(name).or_default().push(place);
            }
        }
    }
    seen.retain(|_, places| places.len() > 1);
    assert!(seen.is_empty(), "two meanings: {seen:#?}");
}

#[test]
fn declarations_are_parsed_from_lines() {
    for (line, name) in [
        ("struct A {", Some("A")),
        ("pub(crate) enum B<T> {", Some("B")),
        ("    pub(super) struct InAModule(u8);", Some("InAModule")),
        ("pub type Alias = u8;", Some("Alias")),
        ("    type Output = u8;", None),
        ("const LIMIT: u8 = 1;", Some("LIMIT")),
        ("    const OF_A_TRAIT: u8 = 1;", None),
        ("static mut S: u8 = 1;", Some("S")),
        ("pub unsafe trait T {}", Some("T")),
        ("pub const fn f() {}", None),
        ("const _: () = {};", None),
        ("    struct_of(a);", None),
    ] {
        assert_eq!(declared(line).map(|(_, name)| name), name, "{line}");
    }
}
