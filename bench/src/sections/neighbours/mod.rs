//! What a tenant that means no harm notices of one that does: each hostile tenant alone with it, in turns with nobody.

mod attack;
mod cases;
mod doors;
mod floods;
mod good;
mod malice;
mod payloads;
mod table;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub use cases::Hostile;

use crate::api::Api;
use crate::page::Page;
use crate::process::Server;
use crate::{Failure, Options};
use attack::{Attack, Loose, Tally, shortened};
use cases::{Case, Sizes};
use good::{Good, Turns};

/// What is measured in turns takes this part of a round's time: there are many hostile tenants.
const PART_OF_A_ROUND: u32 = 2;
/// Until a hostile tenant has made what it needs.
const PREPARE_TIME: Duration = Duration::from_secs(120);
/// A server that takes less than this part of one processor rests; longest time until it does.
const RESTS_BELOW: f64 = 0.2;
const REST_LOOK: Duration = Duration::from_millis(250);
const REST_TIME: Duration = Duration::from_secs(10);
/// Devices whose newest events are looked at in the end, and how long that may take.
const LOOKED_AT: usize = 4;
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Answers that are told.
const ANSWERS_TOLD: usize = 2;

/// What came of a hostile tenant.
struct Row {
    name: String,
    /// What it was answered most, and how often.
    answers: Vec<(String, usize)>,
    alone: Turns,
    beside: Turns,
    /// The most memory of the process while the good tenant was alone, and beside the hostile one.
    memory: (u64, u64),
    /// Why it was ended before its time.
    ended: Option<String>,
    /// What was missing for it to be as it should.
    lacks: Option<String>,
}

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for case in cases::chosen(options) {
        let row = beside(options, case).await.map_err(|failure| format!("{}: {failure}", case.name()))?;
        eprintln!("bench: {}", table::line(&row)?);
        rows.push(row);
    }
    page.put("neighbours", &table::text(options, &rows)?)
}

/// A server with both tenants.
struct Stage {
    server: Server,
    good: Good,
    _folder: TempDir,
}

/// Measures one hostile tenant.
async fn beside(options: &Options, case: Case) -> Result<Row, Failure> {
    let folder = TempDir::with_prefix_in("isobar-bench-", &options.folder)?;
    let (program, threads, settings) = (&options.isobar, options.threads(), case.settings());
    let (server, lacks) = match Server::isobar_with(program, folder.path(), threads, settings).await {
        Ok(server) => (server, None),
        Err(failure) if settings.is_empty() => return Err(failure),
        Err(_) => {
            let lacks = "the program lacks the settings for it".to_owned();
            (Server::isobar(program, folder.path(), threads).await?, Some(lacks))
        }
    };
    let good = Good::make(&server.address, case.is_about_logins()).await?;
    let mut api = Api::register(&server.address, "mallory").await?;
    let mut row = Row {
        name: case.name(),
        answers: Vec::new(),
        alone: Turns::default(),
        beside: Turns::default(),
        memory: (0, 0),
        ended: None,
        lacks,
    };
    let mut stage = Stage { server, good, _folder: folder };
    let sizes = Sizes::of(options);
    match timeout(PREPARE_TIME, case.prepare(&mut api, &sizes)).await {
        Ok(Ok(attack)) => stage.in_turns(options, attack, &mut api, &mut row).await?,
        // What cannot be prepared harms nobody.
        Ok(Err(refused)) => row.answers.push((shortened(&refused.to_string()), 1)),
        Err(_) => row.ended = Some(format!("it was not prepared within {} s", PREPARE_TIME.as_secs())),
    }
    stage.server.kill().await?;
    Ok(row)
}

impl Stage {
    async fn in_turns(
        &mut self,
        options: &Options,
        attack: Attack,
        api: &mut Api,
        row: &mut Row,
    ) -> Result<(), Failure> {
        // Both parts last alike: a disk that stalls now and then does so in either.
        let span = attack.at_least.unwrap_or(Duration::from_secs(options.seconds) / PART_OF_A_ROUND);
        let rounds = if attack.at_least.is_some() { 1 } else { options.rounds };
        let (attack, tally) = (Arc::new(attack), Tally::default());
        for _ in 0..rounds {
            self.rests().await?;
            self.server.forget_peak()?;
            let (heard, ended) = self.good.behave(span, &self.server).await?;
            row.alone.push(heard);
            row.memory.0 = row.memory.0.max(self.server.peak_memory().unwrap_or_default());
            if let Some(ended) = ended {
                row.ended = Some(format!("alone after it: {ended}"));
                break;
            }
            if let Some(moment) = attack.not_before {
                sleep_until(moment).await;
            }
            self.server.forget_peak()?;
            let loose = Loose::begin(&attack, &self.server.address, &tally)?;
            sleep(attack.lead).await;
            let outcome = self.good.behave(span, &self.server).await;
            loose.end();
            let (heard, ended) = outcome?;
            row.beside.push(heard);
            row.memory.1 = row.memory.1.max(self.server.peak_memory().unwrap_or_default());
            row.ended = ended;
            if row.ended.is_some() {
                break;
            }
        }
        let _ = timeout(LOOK_TIME, look_at_events(api, &attack, &tally)).await;
        row.answers = tally.most(ANSWERS_TOLD);
        Ok(())
    }

    /// Waits until the server has nothing to do, or it has had time enough for it.
    async fn rests(&self) -> Result<(), Failure> {
        let given_up = Instant::now() + REST_TIME;
        loop {
            let before = self.server.processor_time()?;
            sleep(REST_LOOK).await;
            let taken = self.server.processor_time()?.saturating_sub(before);
            if taken < REST_LOOK.mul_f64(RESTS_BELOW) || Instant::now() > given_up {
                return Ok(());
            }
        }
    }
}

/// Counts the errors on the newest events of some of the devices: what was accepted may have failed in its design.
async fn look_at_events(api: &mut Api, attack: &Attack, tally: &Tally) -> Result<(), Failure> {
    let mut api = api.again().await?;
    for device in attack.devices.iter().take(LOOKED_AT) {
        let events = api.call("GET", &format!("/v2/devices/{}/events?limit=1", device.id), None).await?;
        let errors = events["data"][0]["errors"].as_array().cloned().unwrap_or_default();
        let mut told: Vec<String> =
            errors.iter().filter_map(|error: &Value| Some(error["message"].as_str()?.to_owned())).collect();
        told.sort();
        told.dedup();
        told.iter().for_each(|message| tally.count(&format!("on the event: {}", shortened(message))));
    }
    Ok(())
}
