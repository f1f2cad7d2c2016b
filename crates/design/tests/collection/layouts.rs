//! Layouts of published collections: where their codecs and examples are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{trial, yaml};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A published codec.
#[derive(Debug)]
pub struct Codec {
    /// Path in the collection.
    pub name: String,
    /// Code, or the reason why there is none.
    pub code: Result<String, String>,
    /// Examples, in the format of the element's own tests (see `tests/codecs.rs`).
    pub examples: Vec<Value>,
    /// Parts that could not be read.
    pub faults: Vec<String>,
}

/// Codecs of a collection, by the files of their code.
struct Codecs<'a> {
    folder: &'a Path,
    by_file: BTreeMap<PathBuf, Codec>,
}

/// Reads all codecs of a folder, in the order of their names:
///
/// - The Things Stack, TheThingsNetwork/lorawan-devices: `*-codec.yaml` has `uplinkDecoder: {fileName, examples: [{description,
///   input, output}]}`;
/// - ChirpStack, device profiles: `codecs/NAME.js` beside `codecs/test_decode_NAME.json`, a list of `{name, input, expected}`
///   in JavaScript;
/// - packages by the LoRaWAN payload codec API: `index.js`, or what `package.json` calls `main`, beside `examples.json` or
///   `examples/*.json`, lists of `{type, description, input, output}`;
/// - our own: `codec.js` beside `examples.json`;
/// - JavaScript that looks like a codec, without examples.
pub fn read(folder: &Path) -> Vec<Codec> {
    let (files, unread) = files(folder);
    let mut codecs = Codecs { folder, by_file: BTreeMap::new() };
    for (file, why) in unread {
        codecs.of(&file).faults.push(why);
    }
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let parent = file.parent().unwrap_or(folder);
        if name.ends_with(".yaml") || name.ends_with(".yml") {
            codecs.add_yaml(file);
        } else if let Some(code) = name.strip_prefix("test_decode_").and_then(|rest| rest.strip_suffix(".json")) {
            codecs.add_list(file, &parent.join(format!("{code}.js")));
        } else if name == "examples.json" {
            codecs.add_list(file, &main_of(parent));
        } else if name.ends_with(".json") && parent.ends_with("examples") {
            codecs.add_list(file, &main_of(parent.parent().unwrap_or(parent)));
        }
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "js")) {
        codecs.add_alone(file);
    }
    codecs.by_file.into_values().collect()
}

impl Codecs<'_> {
    /// Returns the codec whose code is in that file.
    fn of(&mut self, file: &Path) -> &mut Codec {
        // Two names of one file are one codec.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.to_owned());
        self.by_file.entry(file).or_insert_with_key(|file| {
            let inside = file.strip_prefix(&folder);
            let code = match inside {
                Ok(_) if file == &folder => Err("cannot be read".to_owned()),
                Ok(_) => text_of(file),
                Err(_) => Err("leads out of the collection".to_owned()),
            };
            let name = inside.unwrap_or(file).to_string_lossy().into_owned();
            Codec { name, code, examples: Vec::new(), faults: Vec::new() }
        })
    }

    /// Adds the examples of a file to a codec.
    fn add(&mut self, file: &Path, code: &Path, examples: Result<Vec<Value>, String>) {
        let shown = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let codec = self.of(code);
        match examples {
            Ok(examples) => codec.examples.extend(examples),
            Err(why) => codec.faults.push(format!("{shown}: {why}")),
        }
    }

    fn add_yaml(&mut self, file: &Path) {
        let text = match text_of(file) {
            // Most files of the collection describe devices.
            Ok(text) if !text.contains("uplinkDecoder") => return,
            Ok(text) => text,
            Err(why) => return self.add(file, file, Err(why)),
        };
        let document = match yaml::read(&text) {
            Ok(document) => document,
            Err(why) => return self.add(file, file, Err(format!("is no YAML: {why}"))),
        };
        let decoder = &document["uplinkDecoder"];
        if decoder.is_null() {
            return;
        }
        let Some(name) = decoder["fileName"].as_str() else {
            return self.add(file, file, Err("uplinkDecoder.fileName names no file".to_owned()));
        };
        let code = file.with_file_name(name);
        let examples = match &decoder["examples"] {
            Value::Null => Ok(Vec::new()),
            Value::Array(examples) => Ok(examples.iter().map(ours).collect()),
            _ => Err("uplinkDecoder.examples is no list".to_owned()),
        };
        self.add(file, &code, examples);
    }

    fn add_list(&mut self, file: &Path, code: &Path) {
        let listed = text_of(file).and_then(|text| list(&text));
        // Encoders and downlinks are not supported.
        let is_uplink = |example: &&Value| example["type"].as_str().is_none_or(|kind| kind.starts_with("uplink"));
        let examples = listed.map(|examples| examples.iter().filter(is_uplink).map(ours).collect());
        self.add(file, code, examples);
    }

    fn add_alone(&mut self, file: &Path) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if [".spec.js", ".test.js", "encoder.js"].iter().any(|ending| name.ends_with(ending)) {
            return;
        }
        let looks = |code: &str| ["decodeUplink", "Decode(", "Decoder("].iter().any(|word| code.contains(word));
        if text_of(file).is_ok_and(|code| looks(&code)) {
            self.of(file);
        }
    }
}

/// Returns all files below a folder, sorted by name, and what could not be read. Links are not followed.
fn files(folder: &Path) -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
    let (mut files, mut unread, mut waiting) = (Vec::new(), Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = waiting.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(why) => {
                unread.push((folder, why.to_string()));
                continue;
            }
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && name != "node_modules" && !name.to_string_lossy().starts_with('.') {
                waiting.push(entry.path());
            }
        }
    }
    files.sort();
    (files, unread)
}

fn text_of(file: &Path) -> Result<String, String> {
    let size = fs::metadata(file).map_err(|why| why.to_string())?.len();
    if size > FILE_BYTES_MAX {
        return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
    }
    // Comments in other encodings than UTF-8 must not exclude a codec.
    let bytes = fs::read(file).map_err(|why| why.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the code of a package.
fn main_of(folder: &Path) -> PathBuf {
    let ours = folder.join("codec.js");
    if ours.is_file() {
        return ours;
    }
    let package = text_of(&folder.join("package.json")).and_then(|text| list_or_value(&text));
    let main = package.ok().and_then(|package| package["main"].as_str().map(|main| folder.join(main)));
    main.filter(|main| main.is_file()).unwrap_or_else(|| folder.join("index.js"))
}

fn list(text: &str) -> Result<Vec<Value>, String> {
    match list_or_value(text)? {
        Value::Array(examples) if examples.is_empty() => Err("has no example".to_owned()),
        Value::Array(examples) => Ok(examples),
        _ => Err("is no list of examples".to_owned()),
    }
}

/// Parses JSON, or evaluates JavaScript, because examples of ChirpStack are part of a script.
fn list_or_value(text: &str) -> Result<Value, String> {
    trial::exact(text).or_else(|fault| {
        trial::evaluated(text).map_err(|why| format!("is neither JSON ({fault}) nor JavaScript ({why})"))
    })
}

/// Converts an example of another format to ours. One of an unknown format stays unchanged.
fn ours(example: &Value) -> Value {
    let Some(input) = example.get("input") else { return example.clone() };
    let described = ["description", "name"].iter().find_map(|member| example[*member].as_str());
    let mut ours = json!({
        "description": described.unwrap_or("without a description"),
        "fPort": input["fPort"],
        "bytes": bytes(&input["bytes"]),
    });
    for member in ["recvTime", "variables"] {
        if let Some(value) = input.get(member) {
            ours[member] = value.clone();
        }
    }
    let output = example.get("output").or_else(|| example.get("expected")).unwrap_or(&Value::Null);
    let fails = output["errors"].as_array().is_some_and(|errors| !errors.is_empty());
    if fails {
        ours["errors"] = output["errors"].clone();
    } else if let Some(data) = output.get("data") {
        ours["expected"] = data.clone();
    }
    if let Some(warnings) = output.get("warnings").filter(|warnings| warnings.is_array()) {
        ours["warnings"] = warnings.clone();
    }
    ours
}

/// Converts bytes to a list: some formats have hexadecimal.
fn bytes(given: &Value) -> Value {
    let digits: Option<Vec<u32>> = given.as_str().and_then(|text| {
        let digits = text.trim_start_matches("0x").chars().filter(|character| !character.is_whitespace());
        digits.map(|digit| digit.to_digit(16)).collect()
    });
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            digits.as_chunks::<2>().0.iter().map(|[high, low]| json!(16 * high + low)).collect()
        }
        _ => given.clone(),
    }
}
