//! `isobar design test`: cases in a file, each a dry run.

use std::path::{Path, PathBuf};

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ProjectOptions, read_design};
use crate::client::caller::ApiClient;
use crate::client::failure::ClientError;
use crate::client::http::Call;
use crate::client::text_diff::diff;
use crate::client::{print, progress, read_file};

/// Flags of `isobar design test`.
#[derive(Debug, clap::Args)]
pub struct TestOptions {
    #[command(flatten)]
    project: ProjectOptions,
    /// The cases: TOML, or JSON if the name ends in .json
    file: PathBuf,
    /// A design to try instead of the one in force
    #[arg(long, value_name = "FILE")]
    design: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    #[serde(rename = "case")]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    element: String,
    payload: Value,
    /// A device whose settings, values and state the run sees.
    device: Option<String>,
    /// All expected effects, in order.
    effects: Vec<Value>,
    /// Names of the elements that fail.
    #[serde(default)]
    errors: Vec<String>,
}

/// The result of a case.
#[derive(Serialize)]
struct CaseResult {
    name: String,
    passed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
}

/// Runs all cases; returns true if each had the expected effects.
pub async fn run(options: &TestOptions) -> Result<bool, ClientError> {
    let cases = read_cases(&options.file)?;
    let design = options.design.as_deref().map(read_design).transpose()?;
    let design: Option<Box<serde_json::value::RawValue>> = design
        .map(serde_json::value::RawValue::from_string)
        .transpose()
        .map_err(|error| unreadable(&options.file, &error))?;
    let mut caller = ApiClient::find(&options.project.server)?;
    let bar = progress(cases.len());
    let mut results = Vec::with_capacity(cases.len());
    for case in &cases {
        results.push(try_case(&mut caller, options, case, design.as_deref()).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&if options.json { as_json(&results)? } else { as_text(&results) })?;
    Ok(results.iter().all(|result| result.passed))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DryRun<'a> {
    element_name: &'a str,
    payload: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    specification: Option<&'a serde_json::value::RawValue>,
}

async fn try_case(
    caller: &mut ApiClient,
    options: &TestOptions,
    case: &Case,
    specification: Option<&serde_json::value::RawValue>,
) -> Result<CaseResult, ClientError> {
    let device = case.device.as_deref();
    let asked = DryRun { element_name: &case.element, payload: &case.payload, device, specification };
    let body = serde_json::to_string(&asked).map_err(|error| unreadable(&options.file, &error))?;
    let call = Call::new(Method::POST, &options.project.path("/test"))?.with_json(body).repeatable();
    let answer = caller.call(call).await.map_err(|error| match error {
        ClientError::Refused(told) => ClientError::Refused(format!("case {:?}: {told}", case.name)),
        other => other,
    })?;
    let found: Value = serde_json::from_slice(&answer.body)
        .map_err(|_| ClientError::Unreachable("the answer is no dry run; is the address right?".to_owned()))?;
    let errors: Vec<&Value> = found["errors"].as_array().into_iter().flatten().map(|error| &error["element"]).collect();
    let expected = json!({"effects": case.effects, "errors": case.errors});
    let found = json!({"effects": found["effects"], "errors": errors});
    Ok(CaseResult { name: case.name.clone(), passed: expected == found, diff: diff(&lines(&expected), &lines(&found)) })
}

fn lines(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn as_json(results: &[CaseResult]) -> Result<String, ClientError> {
    let text = serde_json::to_string(&json!({"cases": results}));
    text.map(|text| text + "\n").map_err(|error| ClientError::Local(error.to_string()))
}

fn as_text(results: &[CaseResult]) -> String {
    let mut out = String::new();
    for result in results {
        let outcome = if result.passed { "pass" } else { "FAIL" };
        out.push_str(&format!("{outcome}  {}\n", result.name));
        if !result.passed {
            out.push_str("      - expected, + found\n");
            result.diff.lines().for_each(|line| out.push_str(&format!("      {line}\n")));
        }
    }
    let failed = results.iter().filter(|result| !result.passed).count();
    out.push_str(&format!("{} passed, {failed} failed\n", results.len() - failed));
    out
}

fn read_cases(file: &Path) -> Result<Vec<Case>, ClientError> {
    let text = read_file(file)?;
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    // Both errors name the line.
    let read: Cases = if is_json {
        serde_json::from_str(&text).map_err(|error| unreadable(file, &error))?
    } else {
        toml::from_str(&text).map_err(|error| unreadable(file, &error))?
    };
    if read.cases.is_empty() { Err(unreadable(file, &"it has no case")) } else { Ok(read.cases) }
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> ClientError {
    ClientError::Local(format!("cannot read the cases in {}: {error}", file.display()))
}
