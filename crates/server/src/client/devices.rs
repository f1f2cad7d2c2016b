//! `isobar devices`: lists a fleet, exports it, and creates it from a file.

mod import;
mod rows;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use isobar_model::quote::plain;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::caller::ApiClient;
use super::csv;
use super::failure::ClientError;
use super::http::{Call, with_query};
use super::{ServerOptions, print, progress, unprinted};
use crate::output::Pieces;

/// Most ids in one URL, as a request head may have 16 KiB.
const DEVICES_A_CALL_MAX: usize = 200;

/// `isobar devices …`.
#[derive(Debug, clap::Subcommand)]
pub enum DevicesCommand {
    /// Print devices, a page at a time
    List(ListOptions),
    /// Write all devices as CSV or as lines of JSON
    Export(ExportOptions),
    /// Make devices from a file of CSV or lines of JSON; those that are there already are passed over
    Import(import::ImportOptions),
}

/// The selection of devices.
#[derive(Debug, clap::Args)]
pub struct SelectionOptions {
    /// The organization [default: the caller's]
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
    /// Number of levels of organizations; 1 is the organization alone
    #[arg(long, default_value = "all", value_name = "LEVELS")]
    depth: String,
    /// Part of a name or another text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Filters, like 'statusInt[gte]=3' or 'meta.floor[eq]=2'; all must hold
    #[arg(long = "filter", value_name = "FIELD[OP]=VALUE", value_parser = filter)]
    filters: Vec<(String, String)>,
    /// Field to sort by; a minus before it descends
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Flags of `isobar devices list`.
#[derive(Debug, clap::Args)]
pub struct ListOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// Page, from 1
    #[arg(long, default_value_t = 1)]
    page: u32,
    /// Devices a page
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Print a line of JSON for each device
    #[arg(long)]
    json: bool,
}

/// Flags of `isobar devices export`.
#[derive(Debug, clap::Args)]
pub struct ExportOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// csv or jsonl
    #[arg(long, default_value = "csv")]
    format: ExportFormat,
    /// Columns of CSV, with commas, like name,projectUuid,meta.floor
    #[arg(long, value_name = "NAMES")]
    columns: Option<String>,
    /// File to write instead of standard output; it is there once it is whole
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum ExportFormat {
    /// A row for each device.
    Csv,
    /// An object for each device, with all that the server says of it.
    Jsonl,
}

/// The columns of a device in a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownDevice {
    id: String,
    name: String,
    status_text: String,
    last_active: Option<String>,
}

/// A page of a list.
#[derive(Deserialize)]
struct DevicePage {
    data: Vec<Box<RawValue>>,
}

/// Runs a command.
pub async fn run(command: &DevicesCommand) -> Result<bool, ClientError> {
    match command {
        DevicesCommand::List(options) => list(options).await,
        DevicesCommand::Export(options) => export(options).await,
        DevicesCommand::Import(options) => import::run(options).await,
    }
}

/// Parses `FIELD[OP]=VALUE` into the parameter of the API.
fn filter(text: &str) -> Result<(String, String), String> {
    let read = || {
        let (key, value) = text.split_once("]=")?;
        let (field, operator) = key.rsplit_once('[')?;
        let is_whole = !field.is_empty() && !operator.is_empty();
        is_whole.then(|| (format!("filter[{field}][{operator}]"), value.to_owned()))
    };
    read().ok_or_else(|| "must be like 'statusInt[gte]=3'".to_owned())
}

impl SelectionOptions {
    /// Returns the URL of the list with additional parameters.
    fn path(&self, more: &[(&str, &str)]) -> String {
        let mut parameters = vec![("depth", self.depth.as_str())];
        parameters.extend(self.organization.iter().map(|id| ("organizationId", id.as_str())));
        parameters.extend(self.search.iter().map(|text| ("searchText", text.as_str())));
        parameters.extend(self.sort.iter().map(|field| ("sortBy", field.as_str())));
        parameters.extend(self.filters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        parameters.extend(more);
        with_query("/v2/devices", &parameters)
    }
}

async fn list(options: &ListOptions) -> Result<bool, ClientError> {
    let mut client = ApiClient::find(&options.selection.server)?;
    let (page, limit) = (options.page.to_string(), options.limit.to_string());
    for device in page_of(&mut client, &options.selection.path(&[("page", &page), ("limit", &limit)])).await? {
        let line = match serde_json::from_str::<ShownDevice>(device.get()) {
            Ok(shown) if !options.json => {
                let last_active = plain(shown.last_active.as_deref().unwrap_or("-"));
                let (id, status, name) = (plain(&shown.id), plain(&shown.status_text), plain(&shown.name));
                format!("{id} {status:<8} {last_active:<24} {name}\n")
            }
            _ => format!("{device}\n"),
        };
        print(&line)?;
    }
    Ok(true)
}

async fn page_of(client: &mut ApiClient, path: &str) -> Result<Vec<Box<RawValue>>, ClientError> {
    let answer = client.call(Call::new(Method::GET, path)?).await?;
    let page: DevicePage = serde_json::from_slice(&answer.body).map_err(|_| no_list())?;
    Ok(page.data)
}

fn no_list() -> ClientError {
    ClientError::Unreachable("the answer is no list of devices; is the address right?".to_owned())
}

/// Makes the call that exports the whole list as of one moment.
fn csv_call(path: &str) -> Result<Call, ClientError> {
    Call::new(Method::GET, path)?.with_header(ACCEPT, "text/csv")
}

/// Reads columns of a whole list.
async fn columns_of(client: &mut ApiClient, path: &str) -> Result<Vec<Vec<String>>, ClientError> {
    let answer = client.call(csv_call(path)?).await?;
    let text = std::str::from_utf8(&answer.body).map_err(|_| no_list())?;
    let rows = csv::rows(text).map_err(|_| no_list())?;
    Ok(rows.into_iter().skip(1).map(|row| row.cells).collect())
}

async fn export(options: &ExportOptions) -> Result<bool, ClientError> {
    let mut client = ApiClient::find(&options.selection.server)?;
    let mut output = Output::new(options.output.as_deref())?;
    match options.format {
        ExportFormat::Csv => export_csv(&mut client, options, &mut output).await?,
        ExportFormat::Jsonl => export_lines(&mut client, options, &mut output).await?,
    }
    output.end()?;
    Ok(true)
}

async fn export_csv(client: &mut ApiClient, options: &ExportOptions, output: &mut Output) -> Result<(), ClientError> {
    let columns: Vec<_> = options.columns.iter().map(|names| ("columns", names.as_str())).collect();
    let response = client.open(csv_call(&options.selection.path(&columns))?).await?;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/csv") {
        return Err(no_list());
    }
    let mut body = response.into_body();
    let seconds = options.selection.server.timeout();
    loop {
        let frame = client.http.clock.timeout(seconds, body.frame()).await;
        let frame = frame.map_err(|_| ClientError::Unreachable("the list stopped on its way".to_owned()))?;
        let Some(frame) = frame else { return Ok(()) };
        if let Some(bytes) = frame.map_err(|error| client.http.broken(&error))?.data_ref() {
            output.write(bytes)?;
        }
    }
}

/// Writes devices by ids that were listed once, so that creations and deletions meanwhile shift no page.
async fn export_lines(client: &mut ApiClient, options: &ExportOptions, output: &mut Output) -> Result<(), ClientError> {
    let ids = columns_of(client, &options.selection.path(&[("columns", "id")])).await?;
    let ids: Vec<String> = ids.into_iter().filter_map(|cells| cells.into_iter().next()).collect();
    let bar = progress(ids.len());
    let limit = DEVICES_A_CALL_MAX.to_string();
    for part in ids.chunks(DEVICES_A_CALL_MAX) {
        let path = options.selection.path(&[("entityList", &part.join(",")), ("limit", &limit)]);
        for device in page_of(client, &path).await? {
            output.write(format!("{device}\n").as_bytes())?;
        }
        bar.inc(part.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// The output of an export: standard output, or a file that gets its name when it is complete.
struct Output {
    file: Option<(File, PathBuf, PathBuf)>,
    standard: Pieces,
}

impl Output {
    fn new(path: Option<&Path>) -> Result<Self, ClientError> {
        let open = |path: &Path| {
            let mut next = path.as_os_str().to_owned();
            next.push(".part");
            let next = PathBuf::from(next);
            File::create(&next).map(|file| (file, next, path.to_owned())).map_err(|error| unwritable(path, &error))
        };
        Ok(Self { file: path.map(open).transpose()?, standard: Pieces::default() })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match &mut self.file {
            Some((file, _, path)) => file.write_all(bytes).map_err(|error| unwritable(path, &error)),
            None => self.standard.write(bytes).map_err(|error| unprinted(&error)),
        }
    }

    fn end(self) -> Result<(), ClientError> {
        let Some((file, next, path)) = self.file else { return Ok(()) };
        file.sync_all().and_then(|()| std::fs::rename(&next, &path)).map_err(|error| unwritable(&path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> ClientError {
    ClientError::Local(format!("cannot write {}: {error}", path.display()))
}
