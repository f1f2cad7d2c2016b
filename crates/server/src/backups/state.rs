//! Record of the backups that this platform made: it removes only these, and nothing else at a target.

use std::path::{Path, PathBuf};

use isobar_model::time::Timestamp;
use serde_json::{Value, json};

use super::target::Begun;
use crate::Failure;
use crate::folder::write_whole;

const FILE: &str = "state.json";
/// Length of the id that distinguishes a platform's backups from others.
const ID_LETTERS: usize = 8;

/// The record in the data folder.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// This platform's id in the names of its backups.
    pub id: String,
    /// Time from which backups are wanted.
    pub since: Timestamp,
    /// Backups that may be incomplete.
    pub begun: Vec<Pending>,
    /// Backups that count, oldest first.
    pub good: Vec<Good>,
    /// True if the newest attempt failed.
    pub is_failing: bool,
}

/// An unfinished backup.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its target.
    pub target: String,
    /// Its file there.
    pub begun: Begun,
}

/// A backup that counts.
#[derive(Clone, Debug)]
pub struct Good {
    /// Its target.
    pub target: String,
    /// Its name there.
    pub name: String,
    /// Its time.
    pub at: Timestamp,
}

impl State {
    /// Reads the record in a folder. An unreadable one is discarded, and none of its backups are removed.
    pub fn load(folder: &Path, now: Timestamp, fresh: impl FnOnce() -> String) -> Self {
        let begin =
            |fresh: String| Self { id: fresh.chars().take(ID_LETTERS).collect(), since: now, ..Self::default() };
        let text = match std::fs::read_to_string(folder.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return begin(fresh()),
            Err(error) => {
                tracing::warn!(%error, "cannot read {FILE} of backups: older ones are no longer removed");
                return begin(fresh());
            }
        };
        match serde_json::from_str(&text).ok().and_then(|noted| Self::read(&noted)) {
            Some(state) => state,
            None => {
                tracing::warn!("{FILE} of backups is damaged: older ones are no longer removed");
                begin(fresh())
            }
        }
    }

    fn read(noted: &Value) -> Option<Self> {
        let pending = |noted: &Value| Some(Pending { target: text(noted, "target")?, begun: Begun::from_json(noted)? });
        let good = |noted: &Value| {
            Some(Good { target: text(noted, "target")?, name: text(noted, "name")?, at: moment(&noted["at"])? })
        };
        Some(Self {
            id: text(noted, "id").filter(|id| id.len() == ID_LETTERS && id.chars().all(char::is_alphanumeric))?,
            since: moment(&noted["since"])?,
            begun: noted["begun"].as_array()?.iter().map(pending).collect::<Option<_>>()?,
            good: noted["good"].as_array()?.iter().map(good).collect::<Option<_>>()?,
            is_failing: noted["failing"].as_bool()?,
        })
    }

    /// Writes the record durably.
    pub fn save(&self, folder: &Path) -> Result<(), Failure> {
        let pending = |pending: &Pending| {
            let mut noted = pending.begun.to_json();
            noted["target"] = json!(pending.target);
            noted
        };
        let good = |good: &Good| json!({"target": good.target, "name": good.name, "at": good.at});
        let noted = json!({
            "id": self.id,
            "since": self.since,
            "begun": self.begun.iter().map(pending).collect::<Vec<_>>(),
            "good": self.good.iter().map(good).collect::<Vec<_>>(),
            "failing": self.is_failing,
        });
        let path: PathBuf = folder.join(FILE);
        Ok(write_whole(&path, &format!("{noted:#}\n")).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Returns the time of the newest backup that counts.
    pub fn last_good(&self) -> Option<Timestamp> {
        self.good.iter().map(|good| good.at).max()
    }
}

/// Lists the backups that the platform of a data folder has recorded.
pub fn list(data: &Path) -> Result<String, String> {
    let file = data.join(super::FOLDER).join(FILE);
    let noted = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).ok().and_then(|noted| State::read(&noted)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok("No backup was recorded.\n".to_owned()),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let state = noted.ok_or_else(|| format!("{} is damaged", file.display()))?;
    let good = state.good.iter().map(|good| format!("{} {}/{}\n", good.at, good.target, good.name));
    let outcome = if state.is_failing { "failed" } else { "succeeded" };
    let unfinished = state.begun.len();
    Ok(format!("The newest attempt {outcome}; {unfinished} are unfinished.\n") + &good.collect::<String>())
}

fn text(noted: &Value, name: &str) -> Option<String> {
    noted[name].as_str().map(str::to_owned)
}

fn moment(noted: &Value) -> Option<Timestamp> {
    noted.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_662_900_000);

    fn loaded(folder: &Path) -> State {
        State::load(folder, NOW, || "0123456789abcdef".to_owned())
    }

    #[test]
    fn state_survives_storage() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = loaded(folder.path());
        assert_eq!((&*state.id, state.since, state.last_good()), ("01234567", NOW, None));
        let begun = Begun { name: "two".to_owned(), upload: Some("u".to_owned()), piece: 0 };
        state.begun.push(Pending { target: "s3://vault".to_owned(), begun: begun.clone() });
        state.good.push(Good { target: "/backups".to_owned(), name: "one".to_owned(), at: NOW });
        state.is_failing = true;
        state.save(folder.path()).unwrap();
        let again = State::load(folder.path(), NOW.plus_seconds(5), || panic!("it has its name"));
        assert_eq!((&*again.id, again.since, again.is_failing), ("01234567", NOW, true));
        assert_eq!((&again.begun[0].begun, again.last_good()), (&begun, Some(NOW)));
    }

    #[test]
    fn damaged_state_is_discarded_and_removes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for damaged in [
            "",
            "{}",
            "[1]",
            "{\"id\":\"../../..\",\"since\":\"2026-11-26T03:15:00.000Z\",\"begun\":[],\"good\":[],\"failing\":false}",
        ] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            let state = loaded(folder.path());
            assert!(state.id == "01234567" && state.good.is_empty() && state.begun.is_empty(), "{damaged}");
        }
    }
}
