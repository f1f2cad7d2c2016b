//! Holds the history of the schema: steps of SQL, applied in order, never changed once released.
//!
//! The runner is short, and part of Isobar: that of sqlx records versions in a table of its own, which existing
//! registries lack, and cannot write one step for both dialects. A test compares released steps with their digests.

use super::nouns::specification_versions;
use super::sql::{AdvisoryLock, Connection, Dialect, Sql, one, run, run_script};
use crate::error::{Result, StoreError};

/// Steps of the schema, in order. The version of a step is its position, from 1.
const STEPS: &[&str] = &[
    include_str!("0001_nouns.sql"),
    include_str!("0002_pulse.sql"),
    include_str!("0003_hosts.sql"),
    include_str!("0004_settings_past.sql"),
    include_str!("0005_lanes.sql"),
    include_str!("0006_one_index_an_order.sql"),
    include_str!("0007_counts_of_a_fleet.sql"),
    include_str!("0008_versions.sql"),
    include_str!("0009_retention.sql"),
    include_str!("0010_destinations.sql"),
    include_str!("0011_devices_of_projects.sql"),
    include_str!("0012_letters.sql"),
    include_str!("0013_labels_in_any_case.sql"),
    include_str!("0014_timers.sql"),
    include_str!("0015_alarms.sql"),
    include_str!("0016_boards.sql"),
    include_str!("0017_views.sql"),
    include_str!("0018_alarms_in_order.sql"),
    include_str!("0019_dashboard_links.sql"),
    include_str!("0020_changes.sql"),
    include_str!("0021_nodes.sql"),
    include_str!("0022_stream_marks.sql"),
    include_str!("0023_alarms_assigned.sql"),
    include_str!("0024_telemetry_stores.sql"),
    include_str!("0025_lists_by_creation.sql"),
];

/// Words with which a step begins that SQLite does without.
const POSTGRES_ONLY: &str = "-- PostgreSQL only.";

/// Updates the schema, and the data stored with it, within a transaction that excludes other writers.
pub(super) async fn migrate(tx: &impl Connection) -> Result<()> {
    if advance(tx, STEPS).await? {
        specification_versions::begin_where_missing(tx).await?;
    }
    Ok(())
}

/// Applies those of these steps that were not applied yet; returns true if there were any.
async fn advance(tx: &impl Connection, steps: &[&str]) -> Result<bool> {
    let dialect = Dialect::of(tx);
    AdvisoryLock::Schema.hold(tx).await?;
    run(tx, Sql::new("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")).await?;
    let found = version(tx).await?;
    for (version, step) in (1..).zip(steps).filter(|(version, _)| *version > found) {
        run_script(tx, spelled(step, dialect)).await?;
        run(tx, Sql::new("INSERT INTO schema_version (version) VALUES (?)").bind(version)).await?;
    }
    Ok(found < steps.len() as u64)
}

/// Returns the version of the schema that this program knows.
pub(super) const fn known() -> u64 {
    STEPS.len() as u64
}

/// Reads the version of the schema of a database. Refuses a newer one than this program knows.
pub(super) async fn version(connection: &impl Connection) -> Result<u64> {
    let row = one(connection, Sql::new("SELECT coalesce(max(version), 0) AS version FROM schema_version")).await?;
    let found = row.map_or(Ok(0), |row| row.count("version"))?;
    if found > known() { Err(newer(found)) } else { Ok(found) }
}

/// Builds the error for a schema that is newer than this program.
pub(super) fn newer(found: u64) -> StoreError {
    let known = known();
    StoreError::Damaged(format!("the registry has version {found}, and this version of Isobar reads up to {known}"))
}

/// Spells a step for a dialect.
fn spelled(step: &str, dialect: Dialect) -> String {
    let words = match dialect {
        Dialect::Sqlite if step.starts_with(POSTGRES_ONLY) => return String::new(),
        // SQLite numbers rows only by an INTEGER PRIMARY KEY; its text compares by bytes, in the order of code points.
        Dialect::Sqlite => ["TEXT", "BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER"],
        Dialect::Postgres => {
            ["TEXT COLLATE \"C\"", "BYTEA", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BIGINT"]
        }
    };
    ["{text}", "{bytes}", "{key}", "{number}"]
        .iter()
        .zip(words)
        .fold(step.to_owned(), |text, (mark, word)| text.replace(mark, word))
}

#[cfg(test)]
mod tests {
    use isobar_model::access;
    use isobar_model::ids::ProjectId;
    use isobar_model::time::Timestamp;
    use isobar_model::version::VersionNumber;

    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::registry::Registry;
    use crate::registry::sql::connections::Connections;
    use crate::registry::support::OwnDatabase;

    const HOME: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
    const PROJECT: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
    /// Design whose text no serializer would reproduce unchanged.
    const PLANES: &str = r#"{"cloud" : {"elements":{"a":{"type":"storage"},"ü":{"type":"storage"}}},"n":1.10}"#;

    /// Creates a registry as it was before versions existed, with a project.
    async fn before_versions(address: &str) {
        let db = Connections::open(address).await.unwrap();
        let tx = db.begin().await.unwrap();
        let before = STEPS.iter().position(|step| step.contains("CREATE TABLE specification_versions")).unwrap();
        assert!(advance(&tx, &STEPS[..before]).await.unwrap());
        let home = "INSERT INTO organizations (id, name, lineage, level, search, created_at, updated_at) \
                    VALUES (?, 'Home', ?, 1, 'home', 0, 0)";
        run(&tx, Sql::new(home).bind(HOME).bind(format!("/{HOME}/"))).await.unwrap();
        let project = "INSERT INTO projects (id, organization_id, name, kind, search, created_at, updated_at) \
                       VALUES (?, ?, 'p', 'api', 'p', 0, 0)";
        run(&tx, Sql::new(project).bind(PROJECT).bind(HOME)).await.unwrap();
        let specification = "INSERT INTO specifications (project_id, name, create_version, description, created, \
                             last_modified, meta, planes) VALUES (?, 'cold', '3', 'keeps cold', 5, 7, '{\"by\" : \"ana\"}', ?)";
        run(&tx, Sql::new(specification).bind(PROJECT).bind(PLANES)).await.unwrap();
        tx.commit().await.unwrap();
        db.close().await.unwrap();
    }

    async fn designs_become_first_versions(address: &str) {
        before_versions(address).await;
        for _ in 0..2 {
            let registry = Registry::open(address).await.unwrap();
            let project: ProjectId = PROJECT.parse().unwrap();
            let sees = access::system(project, "a test").reading();
            let versions = registry.specification_versions(&sees).await.unwrap();
            let [first] = versions.as_slice() else { panic!("{versions:?}") };
            assert_eq!((first.number, first.element_count, &*first.name), (VersionNumber::FIRST, 2, "cold"));
            assert_eq!((first.created_at, first.created_by), (Timestamp::from_millis(7), None));
            let whole = registry.specification_version(&sees, first.number).await.unwrap().unwrap().unpack().unwrap();
            assert_eq!((whole.content.planes.text(), whole.content.meta.text()), (PLANES, r#"{"by" : "ana"}"#));
            assert_eq!((&*whole.content.create_version, &*whole.content.description), ("3", "keeps cold"));
            let present = registry.specification_fetch(&sees).await.unwrap().unwrap();
            assert_eq!((present.version, present.planes.text()), (VersionNumber::FIRST, PLANES));
            assert_eq!(registry.check().await.unwrap(), Vec::<String>::new());
            registry.close().await.unwrap();
        }
    }

    // Holds: c13.versions
    #[tokio::test(flavor = "multi_thread")]
    async fn designs_become_first_versions_on_sqlite() {
        let folder = tempfile::tempdir().unwrap();
        designs_become_first_versions(&format!("sqlite:{}", folder.path().join("registry.db").display())).await;
    }

    // Holds: c13.versions
    #[tokio::test(flavor = "multi_thread")]
    async fn designs_become_first_versions_on_postgres() {
        let database = OwnDatabase::new().await;
        designs_become_first_versions(&database.address).await;
        database.remove().await;
    }

    /// SHA-256 of the released steps, in order: every step that is on the main branch, since it may have been applied
    /// somewhere.
    const RELEASED: &[&str] = &[
        "ee95951e953e456f2f7dd3c6dbf1b8bb476d35b5847fc83db08ce67cb93987c2",
        "8a48fb2a78a88791d99afa4fdc8661b2635cf1475c59fcab316690aed3fa40c7",
        "2bd488f53f58a09bfb548bd343b0fa1c07a23fecdb8af707aed918c05e7222ec",
        "289aa12924148f5e6e9f6a2b19556d60938e3f2315a312342e8c8dbbb26d83ed",
        "9d9c7d11049d2314423a719738a0a8c2365bc54415e45dde8f0beebadf23793c",
        "c053103a0e4668559dc902f2d24552d3f122d405f67ca2afc1ecc0a47e17d73c",
        "08dfe14b6a3eeb19f198c340076378bc3349d8e26f1307fe304757048ee7b671",
        "3a25597b8720ffe5c0d686aaebff0f370320db8d5d4021563ffa7317c6052f9a",
        "3ffac82d8b1db5b2d77e2f9553b9d69900d4f1ba7ef94629d0aed42e9aa4c793",
        "5ed90981df1ee08aefed876007bc3bdffd7c6d4f385ef8297826ee8c7891bc97",
        "7b3415a97ebb67a6dd6fa0362c8c88663051b328b5f1be15c08790b23f3b4992",
        "195dee7bce1184d5a4c6b5f1b9cc2ad934da1dd0b8eaea427e60ee75e3fca9dc",
        "0e4d63fcc30b767b05229a864394c716c5b0db888e1e6556811ec6f3cf731aae",
        "9161624d85b668fea4714f9d9a97f4692fa3f7c9cea17502e675f69ade7015a7",
        "156685d3774bdab6c4b43e9e4a03a50dd6e8c8695ad678262aaa5ce53bb3bf75",
        "96756a66b2290584b1745e6c245acf212899997444ec33a139b3ffc68a4da5f5",
        "5c896ffece093ecfb529554aa75279c55b5cbf4f5b59568a4ff698fdd8be6698",
        "8f1efb43613430d39c99195c1f5aceb23a52c149f5a91d90884b9d6748568287",
        "6262d9e500540eff00814e1b52404c343eaf73ae32540adfc955d822eccb046c",
        "dde5030e350ed0e2ca819435491c1b8e58a9a44410063cc0d37f956c14e7c686",
        "3ade282f3d405657fab4d92cffdd9a22d07c0fbcb6e6c4cf5290dbd3e14e81bd",
        "e71aaa3c63cfd48d96bee9d028f9a6cf9b9cfc913139984a00ad5b97507243e1",
        "221e6318b27997751f3ef7665336010208d291bfb94984521182c2cea728f420",
        "c95db02d5da8bd86d7a3a2281b61f02967b5395360e87f08588036780f83606d",
        "f25acb1365f37a0227539a526898af03df7e69bea0b36b1411976bc8f5b509d6",
    ];

    #[test]
    fn a_released_step_is_never_changed() {
        assert_eq!(STEPS.len(), RELEASED.len(), "each step is listed");
        for (version, (step, released)) in (1..).zip(STEPS.iter().zip(RELEASED)) {
            let digest: String = Sha256::digest(step).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, **released, "step {version}");
        }
    }
}
