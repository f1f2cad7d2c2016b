//! Checks that the table of limits agrees with the constants.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{crates, read, root, source_files};

/// A constant of the code.
struct Constant {
    /// Its file: `hub/ingest/mod.rs`.
    place: String,
    name: String,
    /// The source text of its value.
    value: String,
}

/// Returns a file of a crate in the form of the documents, without `crates` and `src`.
pub(crate) fn place_of(path: &Path) -> String {
    let path = path.strip_prefix(root().join("crates")).unwrap().to_str().unwrap();
    path.replacen("/src/", "/", 1)
}

/// Returns the one-line constants of all crates, except texts.
fn constants() -> Vec<Constant> {
    let files = crates().into_iter().flat_map(|name| source_files(&root().join("crates").join(name).join("src")));
    let mut found = Vec::new();
    for (path, text) in files {
        // A value that is too long for one line stands in the next.
        for line in text.replace(" =\n    ", " = ").lines() {
            let parts = line.split_once("const ").and_then(|(_, rest)| rest.strip_suffix(';')?.split_once(": "));
            let Some((name, value)) = parts.and_then(|(name, rest)| Some((name, rest.split_once(" = ")?.1))) else {
                continue;
            };
            if !value.starts_with('"') {
                let (name, value) = (name.to_owned(), value.to_owned());
                found.push(Constant { place: place_of(&path), name, value });
            }
        }
    }
    found
}

/// Parses a number, a product, or a shifted number.
fn number(text: &str) -> Option<u64> {
    let text = text.replace("MIB", "1_048_576");
    if let Some((left, by)) = text.split_once(" << ") {
        return number(left)?.checked_shl(by.parse().ok()?);
    }
    text.split(" * ").map(|part| part.replace('_', "").parse::<u64>().ok()).product()
}

/// Formats a number with commas between the thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    digits.char_indices().fold(String::new(), |mut out, (at, digit)| {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
        out
    })
}

/// Formats a number in each of these units that divides it.
fn in_units(number: u64, units: &[(u64, &str)]) -> Vec<String> {
    let fitting = units.iter().filter(|(size, _)| number.is_multiple_of(*size));
    fitting.map(|(size, unit)| format!("{}{unit}", grouped(number / size))).collect()
}

const TIMES: [(u64, &str); 4] = [(1, " ms"), (1_000, " s"), (3_600_000, " h"), (86_400_000, " days")];

/// Returns the spellings of a limit in documents: `1,024`, `64 KiB`, `60 s`. `None` if the value is not a plain number.
fn spellings(name: &str, value: &str) -> Option<Vec<String>> {
    let within = |begin: &str| value.strip_prefix(begin)?.strip_suffix(')').and_then(number);
    if let Some(seconds) = within("Duration::from_secs(") {
        return Some(in_units(seconds * 1_000, &TIMES));
    }
    if let Some(millis) = within("Duration::from_millis(") {
        return Some(in_units(millis, &TIMES));
    }
    let number = number(value)?;
    if name.contains("SECONDS") {
        return Some(in_units(number * 1_000, &TIMES));
    }
    if name.contains("MILLIS") {
        return Some(in_units(number, &TIMES));
    }
    let mut ways = in_units(number, &[(1, ""), (1 << 10, " KiB"), (1 << 20, " MiB")]);
    ways.extend(number.is_power_of_two().then(|| format!("2^{}", number.trailing_zeros())));
    Some(ways)
}

/// Splits a struct value into its fields, by name; any other value is a single part.
fn parts<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let Some((_, fields)) = value.split_once(" { ") else { return vec![(name, value)] };
    fields.trim_end_matches(" }").split(", ").filter_map(|field| field.split_once(": ")).collect()
}

/// Returns true if a text contains a limit as a whole number.
fn names(text: &str, limit: &str) -> bool {
    let mut places = text.match_indices(limit);
    places.any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + limit.len()..]);
        let goes_on = after.starts_with(|c: char| c.is_ascii_digit())
            || after.starts_with(',') && after[1..].starts_with(|c: char| c.is_ascii_digit());
        !before.ends_with(|c: char| c.is_ascii_digit() || c == ',' || c == '^') && !goes_on
    })
}

/// Returns the texts in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A row of the table: constants, description, and their files.
struct Row {
    names: Vec<String>,
    says: String,
    places: Vec<String>,
}

/// Returns the rows about constants. Rows that name `config.default.toml` are settings.
fn rows() -> Vec<Row> {
    let limits = read("docs/limits.md");
    let cells = limits.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [names, says, places] = cells[..] else { return None };
        Some(Row { names: quoted(names), says: says.to_owned(), places: quoted(places) })
    });
    cells.filter(|row| row.places.iter().any(|place| place.ends_with(".rs"))).collect()
}

#[test]
fn constants_match_the_table_of_limits() {
    let constants = constants();
    let mut told = BTreeSet::new();
    let mut wrong = Vec::new();
    for Row { names: of_row, says, places } in rows() {
        for name in &of_row {
            let Some(found) = constants.iter().find(|c| c.name == *name && places.contains(&c.place)) else {
                wrong.push(format!("{name} is in none of {places:?}"));
                continue;
            };
            told.insert((found.place.clone(), name.clone()));
            for (part, value) in parts(name, &found.value) {
                let ways = spellings(part, value);
                if ways.as_ref().is_some_and(|ways| !ways.iter().any(|limit| names(&says, limit))) {
                    wrong.push(format!("{name} is {ways:?}, the table says: {says}"));
                }
            }
        }
        let is_used = |place: &String| constants.iter().any(|c| c.place == *place && of_row.contains(&c.name));
        wrong.extend(
            places.iter().filter(|place| !is_used(place)).map(|place| format!("{place} has none of {of_row:?}")),
        );
    }
    let untold = constants.iter().filter(|c| c.name.ends_with("_MAX") && !c.place.starts_with("server/simulate/"));
    let untold = untold.filter(|c| !told.contains(&(c.place.clone(), c.name.clone())));
    wrong.extend(untold.map(|c| format!("the table lacks {} of {}", c.name, c.place)));
    assert!(wrong.is_empty() && told.len() > 200, "{} limits are told; {wrong:#?}", told.len());
}

#[test]
fn limits_are_parsed_in_every_spelling() {
    let ways = |name, value| spellings(name, value).unwrap_or_default();
    assert!(ways("A_MAX", "1_024").contains(&"1,024".to_owned()));
    assert!(ways("A_BYTES", "64 << 20").contains(&"64 MiB".to_owned()));
    assert!(ways("A_BYTES", "4 * MIB").contains(&"4 MiB".to_owned()));
    assert_eq!(ways("A_SECONDS", "24 * 3600"), ["86,400,000 ms", "86,400 s", "24 h", "1 days"]);
    assert_eq!(ways("A_TIME", "Duration::from_millis(50)"), ["50 ms"]);
    assert_eq!(ways("IDLE_MILLIS_MAX", "60_000"), ["60,000 ms", "60 s"]);
    assert!(spellings("A_MAX", "OTHER + 1").is_none());
    assert!(names("at most 1,024 bytes", "1,024") && names("16, or 4", "16") && names("of 16,", "16"));
    assert!(!names("at most 11,024", "1,024") && !names("1,024,000", "1,024") && !names("160", "16"));
}
