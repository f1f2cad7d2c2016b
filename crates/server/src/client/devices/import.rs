//! `isobar devices import`: identifies a device by organization, project and name, and never creates it twice.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hyper::Method;
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::quote::quote;
use serde::{Deserialize, Serialize};

use super::rows::{self, DeviceText, LineFault, Rows};
use super::{DEVICES_A_CALL_MAX, columns_of, unwritable};
use crate::client::caller::ApiClient;
use crate::client::failure::ClientError;
use crate::client::http::{Call, with_query};
use crate::client::{ServerOptions, note, print, progress, read_file};

/// Most devices of one call.
const BATCH_DEVICES_MAX: usize = 500;
/// Size at which a call takes no further device, in bytes: the server's limit is 5 MiB.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Most reported faults of a file.
const FAULTS_TOLD_MAX: usize = 20;

/// Flags of `isobar devices import`.
#[derive(Debug, clap::Args)]
pub struct ImportOptions {
    /// The devices, as CSV or as lines of JSON; - is standard input
    file: PathBuf,
    /// Project of the devices whose line names none
    #[arg(long, short, env = "ISOBAR_PROJECT", value_name = "ID")]
    project: Option<String>,
    /// Organization of the devices whose line names none [default: the caller's]
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
    /// File to which ids and tokens of new devices are added, a line of JSON each; its owner alone can read it
    /// [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Check everything and make nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// The identity of a device: its organization, project and name.
type Identity = (String, String, String);

/// A device to be created.
struct NewRow {
    line: usize,
    name: String,
    body: String,
}

/// The answer to a bulk creation.
#[derive(Deserialize)]
struct BulkReply {
    data: Vec<Created>,
    errors: Vec<Refused>,
}

#[derive(Deserialize)]
struct Created {
    index: usize,
    id: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    index: usize,
    message: String,
}

/// The output for a created device.
#[derive(Serialize)]
struct CreatedLine<'a> {
    line: usize,
    name: &'a str,
    id: &'a str,
    token: &'a str,
}

/// The result of an import.
#[derive(Default)]
struct ImportTally {
    created: usize,
    faults: Vec<LineFault>,
}

/// Creates the missing devices; returns true if no line failed.
pub async fn run(options: &ImportOptions) -> Result<bool, ClientError> {
    let rows =
        rows::read(&options.file, &read_file(&options.file)?).map_err(|faults| faulty(&options.file, &faults))?;
    let mut client = ApiClient::find(&options.server)?;
    let organization = match &options.organization {
        Some(organization) => organization.clone(),
        None => own_organization(&mut client).await?,
    };
    let rows = identified(rows, &organization, options.project.as_deref());
    let rows = rows.map_err(|faults| faulty(&options.file, &faults))?;
    let existing = existing(&mut client, &rows).await?;
    let all = rows.len();
    let new = rows.into_iter().filter(|(identity, ..)| !existing.contains(identity));
    let new = new.map(|(_, line, device)| row(line, &device)).collect::<Result<Vec<_>, _>>()?;
    // Opened before anything is created, as tokens are shown once.
    let mut output = options.output.as_deref().map(open).transpose()?;
    let mut tally = ImportTally::default();
    let outcome = create(&mut client, options, &new, &mut output, &mut tally).await;
    for fault in &tally.faults {
        note(&told(&options.file, fault));
    }
    let verb = if options.dry_run { "could be made" } else { "made" };
    note(&format!("{} {verb}, {} there already, {} refused", tally.created, all - new.len(), tally.faults.len()));
    if outcome.is_err() {
        note("the import ended early; run it again: what is there is not made twice");
    }
    outcome?;
    Ok(tally.faults.is_empty())
}

async fn create(
    client: &mut ApiClient,
    options: &ImportOptions,
    new: &[NewRow],
    output: &mut Option<(File, PathBuf)>,
    tally: &mut ImportTally,
) -> Result<(), ClientError> {
    let path = if options.dry_run { "/v2/devices/bulk?test=true" } else { "/v2/devices/bulk" };
    let (bar, mut rest) = (progress(new.len()), new);
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch_length(rest));
        let bodies: Vec<&str> = batch.iter().map(|row| row.body.as_str()).collect();
        let mut call = Call::new(Method::POST, path)?.with_json(format!("[{}]", bodies.join(",")));
        call.is_repeatable = options.dry_run;
        let answer = client.call(call).await?;
        let reply: BulkReply = serde_json::from_slice(&answer.body)
            .map_err(|_| ClientError::Unreachable("the answer names no devices; is the address right?".to_owned()))?;
        tally.created += reply.data.len();
        let refused = reply
            .errors
            .into_iter()
            .filter_map(|refused| Some(LineFault { line: batch.get(refused.index)?.line, told: refused.message }));
        tally.faults.extend(refused);
        write(output, &created_lines(batch, &reply.data)?)?;
        bar.inc(batch.len() as u64);
        rest = later;
    }
    bar.finish_and_clear();
    Ok(())
}

fn batch_length(rows: &[NewRow]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(BATCH_DEVICES_MAX).take_while(|row| {
        bytes += row.body.len() + 1;
        bytes <= BATCH_BYTES_MAX
    });
    // A single device that is too long is left for the server to refuse.
    fitting.count().max(1)
}

fn created_lines(batch: &[NewRow], created: &[Created]) -> Result<String, ClientError> {
    let mut text = String::new();
    for created in created {
        let (Some(row), Some(id), Some(token)) = (batch.get(created.index), &created.id, &created.token) else {
            continue;
        };
        let line = CreatedLine { line: row.line, name: &row.name, id, token };
        text.push_str(&serde_json::to_string(&line).map_err(|error| ClientError::Local(error.to_string()))?);
        text.push('\n');
    }
    Ok(text)
}

fn open(path: &Path) -> Result<(File, PathBuf), ClientError> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.map(|file| (file, path.to_owned())).map_err(|error| unwritable(path, &error))
}

fn write(output: &mut Option<(File, PathBuf)>, text: &str) -> Result<(), ClientError> {
    match output {
        Some((file, path)) => {
            file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(|error| unwritable(path, &error))
        }
        None => print(text),
    }
}

async fn own_organization(client: &mut ApiClient) -> Result<String, ClientError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Own {
        organization_id: String,
    }
    let answer = client.call(Call::new(Method::GET, "/v2/auth/user")?).await?;
    let own: Own = serde_json::from_slice(&answer.body)
        .map_err(|_| ClientError::Unreachable("the answer names no user; is the address right?".to_owned()))?;
    Ok(own.organization_id)
}

/// Gives each device its organization and project, and refuses duplicates.
fn identified(
    rows: Rows,
    organization: &str,
    project: Option<&str>,
) -> Result<Vec<(Identity, usize, DeviceText)>, Vec<LineFault>> {
    let (mut found, mut faults, mut lines) = (Vec::new(), Vec::new(), HashMap::new());
    for (line, mut device) in rows {
        let mut fault = |told: String| faults.push(LineFault { line, told });
        let of_project = device.project_uuid.as_deref().or(project).map(str::parse::<ProjectId>);
        let of_organization = device.organization_id.as_deref().unwrap_or(organization).parse::<OrganizationId>();
        match (of_organization, of_project) {
            _ if device.name.is_empty() => fault("name: is required".to_owned()),
            (_, None) => fault("projectUuid: is required, or --project".to_owned()),
            (_, Some(Err(_))) => fault("projectUuid: is no id".to_owned()),
            (Err(_), _) => fault("organizationId: is no id".to_owned()),
            (Ok(organization), Some(Ok(project))) => {
                let identity = (organization.to_string(), project.to_string(), exported(&device.name));
                device.organization_id = Some(identity.0.clone());
                device.project_uuid = Some(identity.1.clone());
                match lines.insert(identity.clone(), line) {
                    Some(first) => fault(format!("names the same device as line {first}")),
                    None => found.push((identity, line, device)),
                }
            }
        }
    }
    if faults.is_empty() { Ok(found) } else { Err(faults) }
}

/// Returns a name as an export writes it: with an apostrophe before what a spreadsheet would take for a formula.
fn exported(name: &str) -> String {
    let is_formula = name.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    if is_formula { format!("'{name}") } else { name.to_owned() }
}

/// Returns the existing devices in the projects of these rows.
async fn existing(
    client: &mut ApiClient,
    rows: &[(Identity, usize, DeviceText)],
) -> Result<HashSet<Identity>, ClientError> {
    let projects: HashSet<&str> = rows.iter().map(|((_, project, _), ..)| project.as_str()).collect();
    let projects = projects.into_iter().collect::<Vec<_>>();
    let mut existing = HashSet::new();
    for part in projects.chunks(DEVICES_A_CALL_MAX) {
        let filter = part.join(",");
        let parameters =
            [("depth", "all"), ("columns", "organizationId,projectUuid,name"), ("filter[projectUuid][in]", &filter)];
        for cells in columns_of(client, &with_query("/v2/devices", &parameters)).await? {
            if let Ok([organization, project, name]) = <[String; 3]>::try_from(cells) {
                existing.insert((organization, project, name));
            }
        }
    }
    Ok(existing)
}

fn row(line: usize, device: &DeviceText) -> Result<NewRow, ClientError> {
    let body = serde_json::to_string(device).map_err(|error| ClientError::Local(error.to_string()))?;
    Ok(NewRow { line, name: device.name.clone(), body })
}

fn told(file: &Path, fault: &LineFault) -> String {
    format!("{}:{}: {}", file.display(), fault.line, quote(&fault.told))
}

/// Makes the error of a file with faults, of which nothing was created.
fn faulty(file: &Path, faults: &[LineFault]) -> ClientError {
    let mut lines: Vec<String> = faults.iter().take(FAULTS_TOLD_MAX).map(|fault| told(file, fault)).collect();
    if faults.len() > FAULTS_TOLD_MAX {
        lines.push(format!("and {} more", faults.len() - FAULTS_TOLD_MAX));
    }
    ClientError::Local(format!("nothing was made:\n{}", lines.join("\n")))
}
