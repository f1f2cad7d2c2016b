//! A backup from its start until it counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use isobar_http::BackupStanding;
use isobar_hub::{Shift, guarded};
use isobar_model::chance::Chance;
use isobar_model::time::{Clock, Timestamp};
use serde_json::json;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot, watch};

use super::hashing::{Hashing, hex};
use super::schedule::Schedule;
use super::state::{Good, Pending, State};
use super::target::{Target, target};
use super::trial::Trial;
use super::{FOLDER, archive};
use crate::Failure;
use crate::config::{Place, Settings};
use crate::process::disk;
use crate::stores::Stores;
use crate::upkeep::backup::{self, Mark};
use crate::upkeep::{UpkeepReport, files};

/// The copy that is sent.
const COPY: &str = "copy";
/// Folder into which a backup is restored for its check.
const SCRATCH: &str = "restored";
/// Bytes that a backup leaves free on the disk of the data folder.
const ROOM_LEFT_BYTES: u64 = 256 << 20;
/// Niceness of the thread that reads, encrypts and sends, and of the restore that checks.
const NICENESS: i32 = 19;
const WORKER: &str = "backup";
/// Most missed backups that are counted.
const MISSED_MAX: usize = 1_000;

/// Makes the backups of the settings, one at a time.
pub struct Backups {
    settings: Settings,
    stores: Stores,
    clock: Clock,
    turn: Arc<Mutex<()>>,
    standing: watch::Sender<BackupStanding>,
}

impl Backups {
    /// Makes the worker for these stores.
    pub fn new(settings: &Settings, stores: &Stores, clock: Clock) -> Arc<Self> {
        let (settings, stores, turn) = (settings.clone(), stores.clone(), Arc::default());
        let backups = Self { settings, stores, clock, turn, standing: watch::Sender::default() };
        backups.show(&backups.load());
        Arc::new(backups)
    }

    /// Subscribes to the state of backups.
    pub fn standing(&self) -> watch::Receiver<BackupStanding> {
        self.standing.subscribe()
    }

    fn folder(&self) -> PathBuf {
        self.settings.data.join(FOLDER)
    }

    fn load(&self) -> State {
        State::load(&self.folder(), self.clock.now(), || hex(&Chance::from_system().bits_256()))
    }

    fn show(&self, state: &State) {
        let standing = BackupStanding { last_good: state.last_good(), is_failing: state.is_failing };
        self.standing.send_replace(standing);
    }

    /// Makes a backup now. It is completed even if the caller stops waiting.
    pub async fn make(self: &Arc<Self>) -> Result<UpkeepReport, Failure> {
        let place = self.settings.backup.target.clone();
        let place = place.ok_or("no target is set: name a folder (isobar backup DIR), or set backup.target")?;
        let turn = Arc::clone(&self.turn).try_lock_owned();
        let turn = turn.map_err(|_| "a backup is under way already: wait until it is done")?;
        let (tell, told) = oneshot::channel();
        let backups = Arc::clone(self);
        tokio::spawn(async move {
            let made = guarded(WORKER, backups.make_in_turn(&place, turn)).await;
            // The receiver may be gone.
            let _ = tell.send(made.unwrap_or_else(|| Err("it ended with a panic; the log says more".into())));
        });
        told.await?
    }

    async fn make_in_turn(self: Arc<Self>, place: &Place, _turn: OwnedMutexGuard<()>) -> Result<UpkeepReport, Failure> {
        let made = self.attempt(place).await;
        let mut state = self.load();
        state.is_failing = made.is_err();
        let noted = state.save(&self.folder());
        self.show(&state);
        if let Err(error) = &made {
            metrics::counter!("isobar_backup_failures_total").increment(1);
            tracing::error!(%error, place = %place, "a backup failed");
        }
        made.and_then(|report| noted.map(|()| report))
    }

    async fn attempt(self: &Arc<Self>, place: &Place) -> Result<UpkeepReport, Failure> {
        if let Place::Folder(folder) = place
            && lies_within(folder, &self.settings.data)
        {
            return Err(
                "backup.target lies in the data folder, and would be lost with it: name a folder elsewhere".into()
            );
        }
        let at = self.clock.now();
        let work = Arc::clone(self);
        // Leftovers go first, to free their space.
        let mut state = off_thread(move || {
            let mut state = work.load();
            work.clean(&mut state)?;
            work.check_room(0)?;
            Ok(state)
        })
        .await?;
        backup::into_folder(&self.settings, &self.stores, &self.folder().join(COPY)).await?;
        let (work, place) = (Arc::clone(self), place.clone());
        let made = off_thread(move || {
            let target = target(&place, &work.settings.backup)?;
            let sent = work.send_and_check(&*target, &place, &mut state, at);
            let cleaned = work.clean(&mut state);
            sent.and_then(|report| cleaned.map(|()| report))
        });
        made.await
    }

    /// Removes leftovers of earlier attempts here and in targets. Unreachable ones stay recorded.
    fn clean(&self, state: &mut State) -> Result<(), Failure> {
        let folder = self.folder();
        files::make_folder(&folder)?;
        for name in [COPY, SCRATCH] {
            files::clear(&folder.join(name));
            // The folder may be missing.
            let _ = std::fs::remove_dir(folder.join(name));
        }
        state.begun.retain(|pending| match self.discard(pending) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!(%error, name = pending.begun.name, "cannot remove an unfinished backup yet");
                true
            }
        });
        state.save(&folder)
    }

    fn discard(&self, pending: &Pending) -> Result<(), Failure> {
        let target = target(&Place::read(&pending.target)?, &self.settings.backup)?;
        target.remove(&note_of(&pending.begun.name))?;
        target.discard(&pending.begun)
    }

    /// Checks that the disk of the data folder has room for `bytes`, beside the copy of the registry.
    fn check_room(&self, bytes: u64) -> Result<(), Failure> {
        let registry = self.settings.sqlite_file().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len());
        let wanted = registry.saturating_add(bytes).saturating_add(ROOM_LEFT_BYTES);
        match disk(&self.settings.data) {
            Some((free, _)) if free < wanted => Err(format!(
                "the disk of {} has {} MB left, and a backup needs {} MB of it for a while: make room",
                self.settings.data.display(),
                free / 1_000_000,
                wanted / 1_000_000
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Sends the copy, restores and checks it, and records it as good.
    fn send_and_check(
        &self,
        target: &dyn Target,
        place: &Place,
        state: &mut State,
        at: Timestamp,
    ) -> Result<UpkeepReport, Failure> {
        let copy = self.folder().join(COPY);
        let encrypt_to = &self.settings.backup.encrypt_to;
        let size = files::size(&copy)?;
        let name = name_of(&state.id, at, !encrypt_to.is_empty());
        let begun = target.begin(&name, size)?;
        state.begun.push(Pending { target: place.to_string(), begun: begun.clone() });
        state.save(&self.folder())?;
        let upload = Hashing::new(target.write(&begun)?);
        let upload = match encrypt_to[..] {
            [] => archive::pack(&copy, upload)?,
            _ => archive::pack(&copy, archive::encrypt(encrypt_to, upload)?)?.finish()?,
        };
        let (upload, digest, bytes) = upload.end();
        upload.finish()?;
        let found = self.check(target, &name, &digest, size)?;
        let note = json!({"name": name, "at": at, "bytes": bytes, "sha256": digest, "version": env!("CARGO_PKG_VERSION"),
            "found": found});
        target.put(&note_of(&name), &format!("{note:#}\n"))?;
        state.begun.retain(|pending| pending.begun.name != name);
        state.good.push(Good { target: place.to_string(), name: name.clone(), at });
        state.is_failing = false;
        state.save(&self.folder())?;
        tracing::info!(name, bytes, place = %place, "a backup was made, restored and checked");
        self.remove_old(target, place, state);
        let text =
            format!("The backup {place}/{name} ({:.1} MB) was restored and checked:\n{found}\n", bytes as f64 / 1e6);
        Ok(UpkeepReport { text, sound: true })
    }

    /// Reads back what was sent, and restores it. If it is encrypted and there is no identity, compares what comes back
    /// with the digest of what was sent, and restores the archive as it was before encryption.
    fn check(&self, target: &dyn Target, name: &str, digest: &str, size: u64) -> Result<String, Failure> {
        self.check_room(size)?;
        let (copy, scratch) = (self.folder().join(COPY), self.folder().join(SCRATCH));
        let mark = Mark::read(&copy)?;
        let is_readable = self.settings.backup.encrypt_to.is_empty() || self.settings.backup.identity.is_some();
        let mut trial = Trial::start(&self.settings, &scratch, mark.with_registry)?;
        let mut back = Hashing::new(target.read(name)?);
        if is_readable {
            trial.take(&mut back)?;
        } else {
            if let Some(input) = trial.input() {
                // A restore that ends early reports the reason in its result.
                let _ = archive::pack(&copy, input);
            }
            std::io::copy(&mut back, &mut std::io::sink())?;
        }
        let (_, came_back, _) = back.end();
        if came_back != digest {
            return Err(format!("{name} came back from the target as something else than was sent").into());
        }
        trial.end()
    }

    /// Removes this platform's oldest backups at a target beyond the number to keep.
    fn remove_old(&self, target: &dyn Target, place: &Place, state: &mut State) {
        let place = place.to_string();
        let here = state.good.iter().filter(|good| good.target == place).count();
        let old: Vec<_> = state.good.iter().filter(|good| good.target == place).cloned().collect();
        for good in old.into_iter().take(here.saturating_sub(self.settings.backup.keep)) {
            // The note goes first, as a backup without it does not count.
            match target.remove(&note_of(&good.name)).and_then(|()| target.remove(&good.name)) {
                Ok(()) => state.good.retain(|other| other.name != good.name),
                Err(error) => tracing::warn!(%error, name = good.name, "cannot remove an old backup yet"),
            }
        }
        if let Err(error) = state.save(&self.folder()) {
            tracing::warn!(%error, "cannot record which backups were removed");
        }
    }

    /// Makes backups when they are due, until the hub stops.
    pub async fn on_schedule(self: Arc<Self>, schedule: Schedule, mut shift: Shift) {
        self.clean_after_start().await;
        let mut asked = self.clock.now();
        loop {
            let Some(due) = schedule.after(asked) else { return };
            while self.clock.now() < due {
                self.measure(&schedule);
                shift.well();
                if shift.pause(super::LOOK_EVERY).await {
                    return;
                }
            }
            tokio::select! {
                // A failure is logged, counted and shown where it occurs.
                _ = self.make() => {}
                () = self.measure_always(&schedule) => {}
                () = shift.end() => return,
            }
            asked = self.clock.now();
            let missed = missed(&schedule, due, asked);
            if missed > 0 {
                tracing::warn!(missed, "a backup took longer than its interval: backups were skipped");
            }
        }
    }

    /// Removes leftovers of a killed process.
    async fn clean_after_start(self: &Arc<Self>) {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else { return };
        let work = Arc::clone(self);
        let cleaned = off_thread(move || {
            let cleaned = work.clean(&mut work.load());
            drop(turn);
            cleaned
        });
        if let Err(error) = cleaned.await {
            tracing::warn!(%error, "cannot remove unfinished backups");
        }
    }

    async fn measure_always(&self, schedule: &Schedule) {
        loop {
            self.measure(schedule);
            self.clock.sleep(super::LOOK_EVERY).await;
        }
    }

    /// Updates the metrics: age of the last good backup, and number of missed ones.
    fn measure(&self, schedule: &Schedule) {
        let (state, now) = (self.load(), self.clock.now());
        let since = state.last_good().unwrap_or(state.since);
        metrics::gauge!("isobar_backup_age_seconds").set((now.millis() - since.millis()).max(0) as f64 / 1e3);
        metrics::gauge!("isobar_backup_missed").set(missed(schedule, since, now) as f64);
    }
}

/// Counts the scheduled moments after one moment, up to another.
fn missed(schedule: &Schedule, after: Timestamp, to: Timestamp) -> usize {
    let due = std::iter::successors(schedule.after(after), |due| schedule.after(*due));
    due.take_while(|due| *due <= to).take(MISSED_MAX).count()
}

fn name_of(id: &str, at: Timestamp, is_encrypted: bool) -> String {
    let at: String = at.to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    format!("isobar-{id}-{at}.tar{}", if is_encrypted { ".age" } else { "" })
}

/// Returns the name of the note that makes a backup count.
fn note_of(name: &str) -> String {
    format!("{name}.json")
}

/// Runs work on a thread of its own with low priority.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name(WORKER.to_owned()).spawn(move || {
        isobar_threads::give_way(NICENESS);
        // The receiver may be gone.
        let _ = tell.send(work());
    })?;
    told.await.map_err(|_| "it ended with a panic; the log says more")?
}

/// Returns true if a folder is within another, or the same.
fn lies_within(folder: &Path, other: &Path) -> bool {
    match (folder.canonicalize(), other.canonicalize()) {
        (Ok(folder), Ok(other)) => folder.starts_with(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn backups_skipped_by_a_long_one_are_counted() {
        let hourly = Schedule::read("0 * * * *").unwrap();
        let begun = at("2026-11-26T03:00:00.000Z");
        for (ended, left_out) in
            [("2026-11-26T03:59:59.999Z", 0), ("2026-11-26T04:00:00.000Z", 1), ("2026-11-26T06:10:00.000Z", 3)]
        {
            assert_eq!(missed(&hourly, begun, at(ended)), left_out, "{ended}");
        }
        assert_eq!(missed(&hourly, begun, at("2027-11-26T03:00:00.000Z")), MISSED_MAX, "no more are counted");
    }

    #[test]
    fn backup_name_has_platform_time_and_encryption() {
        let moment = at("2026-11-26T03:15:00.123Z");
        assert_eq!(name_of("4f1c09aa", moment, false), "isobar-4f1c09aa-20261126T031500123Z.tar");
        assert_eq!(note_of(&name_of("4f1c09aa", moment, true)), "isobar-4f1c09aa-20261126T031500123Z.tar.age.json");
    }
}
