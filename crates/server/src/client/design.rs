//! `isobar design`: a project's design as a file, so that it can live in version control.

mod cases;

use std::path::{Path, PathBuf};

use hyper::Method;
use hyper::header::{ETAG, IF_MATCH};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::caller::ApiClient;
use super::failure::ClientError;
use super::http::Call;
use super::json_text::indent;
use super::text_diff::diff;
use super::{ServerOptions, print, read_file};

/// `isobar design …`.
#[derive(Debug, clap::Subcommand)]
pub enum DesignCommand {
    /// Print a project's design
    Get {
        #[command(flatten)]
        project: ProjectOptions,
        /// File to write instead
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show what applying a file would change; exit code 1 if anything
    Diff {
        #[command(flatten)]
        project: ProjectOptions,
        /// The design; - is standard input
        file: PathBuf,
    },
    /// Put a file in force as a project's design
    Apply(ApplyOptions),
    /// Run the cases of a file as dry runs; exit code 1 if one fails
    Test(cases::TestOptions),
}

/// The project of a command.
#[derive(Debug, clap::Args)]
pub struct ProjectOptions {
    /// The project's id
    #[arg(long, short, env = "ISOBAR_PROJECT", value_name = "ID")]
    project: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// Flags of `isobar design apply`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("known").required(true))]
pub struct ApplyOptions {
    #[command(flatten)]
    project: ProjectOptions,
    /// The design; - is standard input
    file: PathBuf,
    /// The design that the file was made from: if the server has another by now, nothing is changed (exit code 6)
    #[arg(long, value_name = "FILE", group = "known")]
    base: Option<PathBuf>,
    /// The tag of the design that the file was made from, as printed by `get`
    #[arg(long, value_name = "TAG", group = "known")]
    if_match: Option<String>,
    /// Replace whatever design the server has now
    #[arg(long, group = "known")]
    overwrite: bool,
}

/// The editable members of a design, in their order in files; each keeps its text.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct DesignText {
    name: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    create_version: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    planes: Option<Box<RawValue>>,
}

/// The current design on the server.
struct Installed {
    text: String,
    tag: String,
}

impl ProjectOptions {
    fn path(&self, rest: &str) -> String {
        format!("/v2/projects/{}/specification{rest}", self.project)
    }
}

/// Runs a command.
pub async fn run(command: &DesignCommand) -> Result<bool, ClientError> {
    match command {
        DesignCommand::Get { project, output } => get(project, output.as_deref()).await,
        DesignCommand::Diff { project, file } => {
            let wanted = read_design(file)?;
            let installed = installed(&mut ApiClient::find(&project.server)?, project).await?;
            let changes = diff(&installed.text, &wanted);
            print(&changes)?;
            Ok(changes.is_empty())
        }
        DesignCommand::Apply(options) => apply(options).await,
        DesignCommand::Test(options) => cases::run(options).await,
    }
}

async fn get(project: &ProjectOptions, output: Option<&Path>) -> Result<bool, ClientError> {
    let installed = installed(&mut ApiClient::find(&project.server)?, project).await?;
    let Some(file) = output else { return print(&installed.text).map(|()| true) };
    std::fs::write(file, &installed.text)
        .map_err(|error| ClientError::Local(format!("cannot write {}: {error}", file.display())))?;
    print(&format!("{}\n", installed.tag))?;
    Ok(true)
}

async fn apply(options: &ApplyOptions) -> Result<bool, ClientError> {
    let project = &options.project;
    let wanted = read_design(&options.file)?;
    let base = options.base.as_deref().map(read_design).transpose()?;
    let mut caller = ApiClient::find(&project.server)?;
    let installed = installed(&mut caller, project).await?;
    let changes = diff(&installed.text, &wanted);
    if changes.is_empty() {
        return print("The design is in force already.\n").map(|()| true);
    }
    if let Some(base) = base.filter(|base| *base != installed.text) {
        let since = diff(&base, &installed.text);
        let told = "the design was changed meanwhile; get it, bring both together and apply again. Since the base:";
        return Err(ClientError::Changed(format!("{told}\n{since}")));
    }
    // Even an overwrite names the version that was read, so that the printed changes are the real ones.
    let tag = options.if_match.as_ref().unwrap_or(&installed.tag);
    let call = Call::new(Method::PUT, &project.path(""))?.with_json(wanted).with_header(IF_MATCH, tag)?;
    caller.call(call).await?;
    print(&changes)?;
    print("The design is in force.\n")?;
    Ok(true)
}

async fn installed(caller: &mut ApiClient, project: &ProjectOptions) -> Result<Installed, ClientError> {
    let answer = caller.call(Call::new(Method::GET, &project.path(""))?).await?;
    let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let text = std::str::from_utf8(&answer.body).ok().and_then(|body| normal(body).ok());
    match (text, tag) {
        (Some(text), Some(tag)) => Ok(Installed { text, tag }),
        _ => Err(ClientError::Unreachable("the answer is no design; is the address right?".to_owned())),
    }
}

fn read_design(file: &Path) -> Result<String, ClientError> {
    // The parser's error names line and column.
    normal(&read_file(file)?).map_err(|error| ClientError::Local(format!("{} is no design: {error}", file.display())))
}

/// Normalizes a design for comparisons.
fn normal(text: &str) -> Result<String, serde_json::Error> {
    let read: DesignText = serde_json::from_str(text)?;
    Ok(indent(&serde_json::to_string(&read)?))
}
