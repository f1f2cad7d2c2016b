//! Trial restores of backups by `isobar restore` in a process of its own, isolated in memory and failures from the
//! platform.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::config::Settings;

/// The running program, even if its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 1 << 16;

/// A restore into a scratch folder that reads its archive from standard input.
pub struct Trial {
    child: Child,
}

impl Trial {
    /// Starts the restore. It inherits the niceness of the calling thread.
    pub fn start(settings: &Settings, scratch: &Path, with_registry: bool) -> Result<Self, Failure> {
        let program = Path::new(OWN_PROGRAM);
        let program = if program.exists() { program.to_owned() } else { std::env::current_exe()? };
        let mut command = Command::new(program);
        command.args(["restore", "-", "--data"]).arg(scratch).env_clear().env("ISOBAR_LOG", "error");
        if let Some(identity) = &settings.backup.identity {
            command.arg("--identity").arg(std::path::absolute(identity)?);
        }
        if !with_registry {
            // Not used, but tells the restore that the registry is not in the backup.
            command.env("ISOBAR_STORES__REGISTRY", &settings.registry);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child =
            command.spawn().map_err(|error| format!("the restore that checks a backup cannot start: {error}"))?;
        Ok(Self { child })
    }

    /// Passes an archive on to its end, even if the restore has ended before.
    pub fn take(&mut self, mut archive: impl Read) -> Result<(), Failure> {
        let mut to = self.child.stdin.take();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = archive.read(&mut piece)?;
            if count == 0 {
                return Ok(());
            }
            if to.as_mut().is_some_and(|to| to.write_all(&piece[..count]).is_err()) {
                to = None;
            }
        }
    }

    /// Takes the pipe to the restore, for another writer, which must drop it at the end.
    pub fn input(&mut self) -> Option<impl Write + use<>> {
        self.child.stdin.take()
    }

    /// Waits until everything is restored and checked; returns its findings.
    pub fn end(mut self) -> Result<String, Failure> {
        drop(self.child.stdin.take());
        let (mut told, mut why) = (String::new(), String::new());
        self.child.stdout.take().map_or(Ok(0), |mut from| from.read_to_string(&mut told))?;
        self.child.stderr.take().map_or(Ok(0), |mut from| from.read_to_string(&mut why))?;
        let status = self.child.wait()?;
        // The first line names the scratch folder.
        let found = told.split_once('\n').map_or("", |(_, rest)| rest).trim();
        match status.success() {
            true => Ok(found.to_owned()),
            false => Err(format!("the backup was made, and is not good: {found}{}", why.trim()).into()),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // The process has ended already, unless the backup was cancelled.
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}
