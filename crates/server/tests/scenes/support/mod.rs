//! The setting of each scene: a server of its own, and the users and devices that call it.

pub mod answer;
pub mod app;
#[path = "../../../../store/tests/suite/telemetry/contended.rs"]
pub mod contended;
pub mod databases;
pub mod designs;
pub mod device;
pub mod document;
pub mod https;
pub mod mail;
pub mod outside;
pub mod person;
#[path = "../../../../store/tests/support/mod.rs"]
pub mod postgres;
pub mod road;
pub mod socket;
pub mod stream;

pub use answer::Answer;
pub use app::TestApp;
pub use device::Device;
pub use person::Person;

/// An identifier that names nothing.
pub const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// Plays each scene on SQLite and on PostgreSQL.
macro_rules! on_both_registries {
    ($($scene:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test] async fn $scene() {
                let app = crate::support::TestApp::start().await;
                super::$scene(&app).await;
                app.end().await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test] async fn $scene() {
                let app = crate::support::TestApp::on_postgres().await;
                super::$scene(&app).await;
                app.end().await;
            })+
        }
    };
}
pub(crate) use on_both_registries;
