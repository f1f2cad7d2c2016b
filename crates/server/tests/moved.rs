//! `isobar move`: a platform whose telemetry is moved to PostgreSQL answers as before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;
#[path = "../../store/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Output;

use program_support::furnished::{answers, furnish};
use program_support::site::{Api, ENVIRONMENT};
use program_support::{Serving, failure, isobar, serve, text};
use support::OwnDatabase;

fn moved(data: &Path, to: &str) -> Output {
    let from = format!("rocksdb:{}", data.join("telemetry").display());
    isobar(&["move", "--from", &from, "--to", to]).output().unwrap()
}

mod on_postgres {
    use super::*;

    #[tokio::test]
    async fn moved_platform_answers_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let (data, database) = (folder.path().join("data"), OwnDatabase::new().await);
        assert!(failure(&moved(&data, &database.address)).contains("there is no telemetry store in"));
        let serving = Serving::on(&data, &ENVIRONMENT);
        let api = Api::of(&serving).await;
        let devices = furnish(&api, 3).await;
        let refused = failure(&moved(&data, &database.address));
        assert!(refused.contains("is in use by another isobar process"), "{refused}");
        assert_eq!(serving.stop(), Some(0));
        let serving = Serving::on(&data, &ENVIRONMENT);
        let before = answers(&api.at(&serving), &devices).await;
        assert_eq!(serving.stop(), Some(0));

        let refused = failure(&moved(&data, "sqlite:x"));
        assert!(refused.contains("--to must be postgres://"), "{refused}");
        let done = moved(&data, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("both sides are the same"), "{done:?}");
        assert!(text(&done.stderr).contains("compared: "), "{done:?}");
        let again = failure(&moved(&data, &database.address));
        assert!(again.contains("already has telemetry"), "{again}");

        let mut command = serve(&data, &ENVIRONMENT);
        command.env("ISOBAR_STORES__TELEMETRY", &database.address).env("ISOBAR_STORES__NEEDS_SYNCS", "false");
        let serving = Serving::of(command);
        let after = answers(&api.at(&serving), &devices).await;
        assert_eq!(after, before);
        assert_eq!(serving.stop(), Some(0));
        database.remove().await;
    }

    #[tokio::test]
    async fn folder_of_a_running_platform_is_refused_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, database) = (folder.path().join("elsewhere"), OwnDatabase::new().await);
        std::fs::create_dir(&elsewhere).unwrap();
        let mut command = serve(&folder.path().join("data"), &ENVIRONMENT);
        command.env("ISOBAR_STORES__TELEMETRY", format!("rocksdb:{}", elsewhere.join("telemetry").display()));
        let serving = Serving::of(command);
        furnish(&Api::of(&serving).await, 2).await;
        let refused = failure(&moved(&elsewhere, &database.address));
        assert!(refused.contains("the telemetry store is in use by another isobar process"), "{refused}");
        // Events that are in the log alone are moved too.
        serving.kill();
        let done = moved(&elsewhere, &database.address);
        assert!(done.status.success() && text(&done.stdout).contains("2 devices, "), "{done:?}");
        database.remove().await;
    }
}
