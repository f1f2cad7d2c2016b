//! Signals that do not stop the process: SIGHUP rereads the certificate's files and the log's levels.

use std::io;

use isobar_http::Tls;
use isobar_hub::spawn_guarded;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config;
use crate::logging::Levels;

/// Handler of SIGHUP, from the moment this is made.
pub struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Installs the handler. SIGUSR1 and SIGUSR2, which would end the process too, have no effect afterwards.
    pub fn catch() -> io::Result<Self> {
        // A handler stays after its stream is dropped.
        drop((signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?));
        signal(SignalKind::hangup()).map(Self)
    }

    /// Rereads at each signal, in the background, until the process ends. Logs what cannot be used, which stays as it was.
    pub fn obey(mut self, flags: config::Flags, levels: Levels, tls: Option<Tls>) {
        spawn_guarded("reload", async move {
            while self.0.recv().await.is_some() {
                let (flags, levels, tls) = (flags.clone(), levels.clone(), tls.clone());
                let reread = tokio::task::spawn_blocking(move || {
                    reread_levels(&flags, &levels);
                    if let Some(tls) = tls {
                        reread_certificate(&tls);
                    }
                });
                if let Err(error) = reread.await {
                    tracing::error!(%error, "SIGHUP: rereading failed");
                }
            }
        });
    }
}

fn reread_levels(flags: &config::Flags, levels: &Levels) {
    let changed = match config::load(flags) {
        Ok(loaded) => levels.change(&loaded.settings.log),
        Err(error) => Err(error.to_string()),
    };
    match changed {
        Ok(()) => tracing::info!("SIGHUP: levels of the log reread; other settings take effect at the next start"),
        Err(cause) => tracing::warn!(cause, "SIGHUP: cannot reread the settings: the previous levels stay in use"),
    }
}

fn reread_certificate(tls: &Tls) {
    match tls.reread() {
        Ok(true) => tracing::info!("SIGHUP: new certificate in use"),
        Ok(false) => tracing::info!("SIGHUP: the certificate has not changed"),
        Err(error) => {
            let cause = error.to_string();
            tracing::warn!(cause, "SIGHUP: cannot use the new certificate: the previous one stays in use");
        }
    }
}
