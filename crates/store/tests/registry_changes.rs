//! Tests that each process over a registry on PostgreSQL reads what others have changed, once, as soon as it is
//! committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests: a broken promise ends them"
)]

#[path = "suite/registry/given.rs"]
mod given;
mod support;

use given::{at, digest, json, may, sees, unchanged, unchanged_user, uuid};
use isobar_model::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};
use isobar_model::organization::OrganizationInput;
use isobar_model::project::SpecificationInput;
use isobar_model::retention::DesignRetention;
use isobar_model::role::Role;
use isobar_model::session::Session;
use isobar_model::status::Status;
use isobar_model::user::ApiKey;
use isobar_model::user_input::CredentialEnds;
use isobar_power::{becomes, within_patience};
use isobar_store::error::StoreError;
use isobar_store::registry::{
    CHANGES_AT_ONCE, ChangeReader, DeviceReport, NewPassword, NewSpecification, Registry, RegistryChange, UserChange,
};
use support::link::{Link, LinkState};
use support::{OwnDatabase, Pair, Raw};

/// A registry with a reader of its changes.
struct Scene {
    database: OwnDatabase,
    registry: Registry,
    reader: ChangeReader,
    home: OrganizationId,
}

impl Scene {
    async fn set() -> Self {
        let migrate = async |address: &str| Registry::open(address).await.unwrap().close().await.unwrap();
        let database = OwnDatabase::with_schema(migrate).await;
        let registry = Registry::open(&database.address).await.unwrap();
        let home = given::organization(&registry, None, "Home").await.id;
        let reader = registry.changes().await.unwrap();
        Self { database, registry, reader, home }
    }

    /// Checks that these changes, and no others, were committed since the last check.
    #[track_caller]
    fn reads<'a>(&'a mut self, expected: &'a [RegistryChange]) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let mut changes = self.reader.next().await.unwrap().unwrap();
            changes.sort_by_key(|change| format!("{change:?}"));
            let mut expected = expected.to_vec();
            expected.sort_by_key(|change| format!("{change:?}"));
            assert_eq!(changes, expected, "{caller}");
        }
    }

    async fn end(self) {
        drop(self.reader);
        self.registry.close().await.unwrap();
        self.database.remove().await;
    }
}

fn session(user: UserId) -> Session {
    Session { id: SessionId(uuid()), user, refresh: Some(digest()), created_at: at(0), expires_at: at(1_000) }
}

async fn makes_key(r: &Registry, user: UserId) -> ApiKeyId {
    let id = ApiKeyId(uuid());
    let key =
        ApiKey { id, user, name: "k".to_owned(), created_at: at(0), role: None, expires_at: None, last_used_at: None };
    assert!(r.api_key_create(&may(user), &key, &digest(), 9).await.unwrap());
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_accounts_are_read() {
    let mut scene = Scene::set().await;
    let (r, home) = (scene.registry.clone(), scene.home);
    let (ana, bob) = (given::user(&r, home, "ana").await, given::user(&r, home, "bob").await);
    let [first, second] = [session(ana.id), session(ana.id)];
    for session in [&first, &second] {
        assert!(!r.session_open(session, 9).await.unwrap());
    }
    let (key, _) = (makes_key(&r, ana.id).await, makes_key(&r, ana.id).await);
    // New rows are cached nowhere, and activity is no change.
    r.users_touch(&[(ana.id, at(1))]).await.unwrap();
    r.api_keys_touch(&[(key, at(1))]).await.unwrap();
    r.session_refresh_end(first.id).await.unwrap();
    let renamed = UserChange { first_name: "Other".to_owned(), ..unchanged_user(&ana) };
    given::user_update(&r, &may(ana.id), &renamed, at(2)).await.unwrap();
    scene.reads(&[]).await;

    let role = UserChange { role: Role::Administrator, ..unchanged_user(&ana) };
    given::user_update(&r, &may(ana.id), &role, at(3)).await.unwrap();
    scene.reads(&[RegistryChange::Account(ana.id)]).await;
    scene.reads(&[]).await;
    let disabled = UserChange { disabled: true, ..role };
    given::user_update(&r, &may(ana.id), &disabled, at(4)).await.unwrap();
    scene.reads(&[RegistryChange::Account(ana.id)]).await;
    let elsewhere = given::organization(&r, None, "Elsewhere").await.id;
    let moved = UserChange { organization: elsewhere, ..disabled };
    given::user_update(&r, &may(ana.id), &moved, at(5)).await.unwrap();
    scene.reads(&[RegistryChange::Account(ana.id)]).await;
    let password =
        Some(NewPassword { hash: "$new".to_owned(), keeps: Some(second.id), ends: CredentialEnds::default() });
    given::user_update(&r, &may(ana.id), &UserChange { password, ..moved }, at(6)).await.unwrap();
    // The password, and the other session.
    scene.reads(&[RegistryChange::Account(ana.id), RegistryChange::Account(ana.id)]).await;

    assert!(r.api_key_delete(&may(ana.id), key).await.unwrap());
    scene.reads(&[RegistryChange::ApiKey]).await;
    r.jwt_revoke("some-jti", at(900)).await.unwrap();
    r.jwt_revoke("some-jti", at(900)).await.unwrap();
    scene.reads(&[RegistryChange::Jwt("some-jti".to_owned())]).await;
    // By cascade: the other session and the other key, with their user.
    r.user_delete(&may(ana.id)).await.unwrap();
    scene.reads(&[RegistryChange::Account(ana.id), RegistryChange::Account(ana.id), RegistryChange::ApiKey]).await;
    r.session_open(&session(bob.id), 9).await.unwrap();
    r.sessions_sweep(at(1_000)).await.unwrap();
    scene.reads(&[RegistryChange::Account(bob.id)]).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_devices_are_read() {
    let mut scene = Scene::set().await;
    let (r, home) = (scene.registry.clone(), scene.home);
    let branch = given::organization(&r, Some(home), "Branch").await.id;
    let (project, other) = (given::project(&r, home, "p").await.id, given::project(&r, home, "q").await.id);
    let device = given::device(&r, branch, project, "d").await;
    let change = RegistryChange::Device { id: device.id, key: device.key, tenant: home };
    // Runs of the design change these all the time.
    let meta = vec![("label".to_owned(), json("1"))];
    let report = DeviceReport { status: Some(Status::Good), meta, ..DeviceReport::default() };
    given::reports(&r, device.reference(), &report, at(1)).await;
    r.devices_touch(&[(device.key, at(2))]).await.unwrap();
    r.device_update(&may(device.reference()), &unchanged(&device), at(3)).await.unwrap();
    scene.reads(&[]).await;

    r.device_token_set(&may(device.reference()), &digest()).await.unwrap();
    scene.reads(std::slice::from_ref(&change)).await;
    let mut update = unchanged(&device);
    update.name = "renamed".to_owned();
    r.device_update(&may(device.reference()), &update, at(4)).await.unwrap();
    scene.reads(std::slice::from_ref(&change)).await;
    update.project = other;
    r.device_update(&may(device.reference()), &update, at(5)).await.unwrap();
    scene.reads(std::slice::from_ref(&change)).await;
    let elsewhere = given::organization(&r, None, "Elsewhere").await.id;
    update.decided_in.0 = other;
    update.organization = Some(elsewhere);
    r.device_update(&may(device.reference()), &update, at(6)).await.unwrap();
    // The tenant that it has left.
    scene.reads(&[change]).await;
    r.device_delete(&may(device.reference())).await.unwrap();
    scene.reads(&[RegistryChange::Device { id: device.id, key: device.key, tenant: elsewhere }]).await;
    scene.end().await;
}

async fn writes_design(r: &Registry, project: ProjectId, elements: &str, retention: &DesignRetention) {
    let design = SpecificationInput {
        name: "d".to_owned(),
        create_version: "1".to_owned(),
        description: String::new(),
        meta: json("{}"),
        planes: json(&format!(r#"{{"cloud":{{"elements":{elements}}}}}"#)),
    };
    r.specification_write(&may(project), &NewSpecification::new(design), None, &[], retention, at(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_designs_are_read() {
    let mut scene = Scene::set().await;
    let (r, home) = (scene.registry.clone(), scene.home);
    let project = given::project(&r, home, "p").await.id;
    r.project_update(&may(project), "renamed", None, at(1)).await.unwrap();
    scene.reads(&[]).await;
    writes_design(&r, project, r#"{"a":{"type":"storage"}}"#, &DesignRetention::new()).await;
    scene.reads(&[RegistryChange::Design(project)]).await;
    writes_design(&r, project, r#"{"a":{"type":"storage"}}"#, &DesignRetention::new()).await;
    scene.reads(&[]).await;
    let elsewhere = given::organization(&r, None, "Elsewhere").await.id;
    r.project_update(&may(project), "renamed", Some(elsewhere), at(2)).await.unwrap();
    scene.reads(&[RegistryChange::Design(project)]).await;
    let raw = Raw::open(&scene.database.address).await;
    for (statement, changes) in [
        ("INSERT INTO project_retention SELECT id, '{}' FROM projects", 1),
        ("UPDATE project_retention SET bounds = '[]'", 1),
        // The project, and by cascade what is kept of it.
        ("DELETE FROM projects", 2),
    ] {
        raw.run(statement).await.unwrap();
        scene.reads(&vec![RegistryChange::Design(project); changes]).await;
    }
    raw.close().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_organizations_are_read() {
    let mut scene = Scene::set().await;
    let (r, home) = (scene.registry.clone(), scene.home);
    let branch = given::organization(&r, Some(home), "Branch").await.id;
    let leaf = given::organization(&r, Some(branch), "Leaf").await.id;
    let project = given::project(&r, home, "p").await.id;
    // Counts of devices and of stored bytes.
    let device = given::device(&r, leaf, project, "d").await;
    r.usage_write(&[(device.key, 100)]).await.unwrap();
    let same = OrganizationInput { name: "Branch".to_owned(), ..OrganizationInput::default() };
    r.organization_update(&may(branch), &same, None, at(1)).await.unwrap();
    scene.reads(&[]).await;

    let change = RegistryChange::Organization { id: branch, tenant: home };
    let renamed = OrganizationInput { name: "Renamed".to_owned(), ..OrganizationInput::default() };
    r.organization_update(&may(branch), &renamed, None, at(2)).await.unwrap();
    scene.reads(std::slice::from_ref(&change)).await;
    let limited = OrganizationInput { data_usage_mb_limit: Some(7.0), ..renamed.clone() };
    r.organization_update(&may(branch), &limited, None, at(3)).await.unwrap();
    scene.reads(&[RegistryChange::Limits]).await;
    // One row tells of the whole branch.
    r.organization_update(&may(branch), &renamed, Some(&may(None)), at(4)).await.unwrap();
    scene.reads(&[change]).await;
    assert!(sees_lineage(&r, leaf).await.starts_with(&format!("/{branch}/")));
    let empty = given::organization(&r, Some(branch), "Empty").await.id;
    r.organization_delete(&may(empty)).await.unwrap();
    scene.reads(&[RegistryChange::Organization { id: empty, tenant: branch }]).await;
    scene.end().await;
}

async fn sees_lineage(r: &Registry, organization: OrganizationId) -> String {
    r.organization_fetch(&sees(organization)).await.unwrap().unwrap().lineage.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_commits_late_is_read_once_and_delays_no_other() {
    let mut scene = Scene::set().await;
    let r = scene.registry.clone();
    let long = Raw::open(&scene.database.address).await;
    long.run("BEGIN; INSERT INTO revoked_jwts (jti, expires_at) VALUES ('late', 9)").await.unwrap();
    for jti in ["a", "b", "c"] {
        r.jwt_revoke(jti, at(900)).await.unwrap();
        scene.reads(&[RegistryChange::Jwt(jti.to_owned())]).await;
        scene.reads(&[]).await;
    }
    long.run("COMMIT").await.unwrap();
    scene.reads(&[RegistryChange::Jwt("late".to_owned())]).await;
    scene.reads(&[]).await;
    long.run("BEGIN; INSERT INTO revoked_jwts (jti, expires_at) VALUES ('never', 9); ROLLBACK").await.unwrap();
    scene.reads(&[]).await;
    long.close().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_vanish_hold_back_no_call() {
    let scene = Scene::set().await;
    let link = Link::to(&scene.database).await;
    let r = Registry::open(&link.address).await.unwrap();
    let home = sees(scene.home);
    // More than there are connections.
    let reads = || futures::future::join_all((0..20).map(|_| r.organization_fetch(&home)));
    let (r, names) = (&r, (0..20).map(|n| format!("{n}")).collect::<Vec<_>>());
    let writes = || futures::future::join_all(names.iter().map(|jti| r.jwt_revoke(jti, at(900))));
    assert!(reads().await.iter().all(Result::is_ok) && writes().await.iter().all(Result::is_ok));
    link.set(LinkState::Silent);
    let (read, written) = futures::join!(reads(), writes());
    let unavailable = |error: &StoreError| error.to_string().contains("the registry 127.0.0.1");
    assert!(read.iter().all(|read| read.as_ref().is_err_and(unavailable)), "{read:?}");
    assert!(written.iter().all(|written| written.as_ref().is_err_and(unavailable)), "{written:?}");
    link.set(LinkState::Lost);
    becomes("the registry is back", async || r.organization_fetch(&home).await.is_ok()).await;
    let (read, written) = within_patience("calls", async { futures::join!(reads(), writes()) }).await;
    assert!(read.iter().all(Result::is_ok) && written.iter().all(Result::is_ok), "{read:?} {written:?}");
    r.close().await.unwrap();
    scene.end().await;
}

/// Calls at the same time: as many as there are connections that read.
const READS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn connection_made_to_a_standby_is_never_read() {
    let pair = tokio::task::spawn_blocking(Pair::start).await.unwrap();
    let link = Link::to_address(&pair.primary).await;
    let (r, other) = (Registry::open(&link.address).await.unwrap(), Registry::open(&pair.primary).await.unwrap());
    let home = given::organization(&other, None, "Before").await.id;
    let sees_home = sees(home);
    let name = async || r.organization_fetch(&sees_home).await.map(|home| home.unwrap().name);
    let names = || futures::future::join_all((0..READS).map(|_| name()));
    assert!(names().await.into_iter().all(|name| name.unwrap() == "Before"));
    pair.freeze_standby().await;
    link.lead_all_to(&pair.standby);
    let changes_places = async {
        becomes("connections are made to the standby", async || link.carried() >= READS).await;
        let renamed = OrganizationInput { name: "After".to_owned(), ..OrganizationInput::default() };
        other.organization_update(&may(home), &renamed, None, at(1)).await.unwrap();
        assert!(r.changes().await.unwrap_err().to_string().contains("standby"));
        // Connections that were made meanwhile stay where they are.
        link.lead_to(&pair.primary);
    };
    within_patience("the calls", async { futures::join!(names(), changes_places) }).await;
    becomes("the registry is read again", async || name().await.is_ok()).await;
    let read: Vec<String> = names().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(read, ["After"; READS]);
    r.changes().await.unwrap();
    r.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn database_without_room_is_unhealthy_until_it_has_some() {
    let scene = Scene::set().await;
    let (r, raw) = (&scene.registry, Raw::open(&scene.database.address).await);
    let ana = given::user(r, scene.home, "ana").await;
    r.healthy().await.unwrap();
    // What PostgreSQL answers when a file cannot grow.
    raw.run(
        "CREATE FUNCTION no_room() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file'; END $$; \
         CREATE FUNCTION no_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file'; END $$; \
         CREATE TRIGGER no_row BEFORE INSERT ON sessions EXECUTE FUNCTION no_row(); \
         CREATE EVENT TRIGGER no_room ON ddl_command_start EXECUTE FUNCTION no_room()",
    )
    .await
    .unwrap();
    assert!(r.session_open(&session(ana.id), 9).await.is_err());
    for millis in 1..3 {
        assert!(r.healthy().await.is_err());
        // A row that is changed where it stands needs no room, and proves nothing.
        r.users_touch(&[(ana.id, at(millis))]).await.unwrap();
    }
    raw.run("DROP EVENT TRIGGER no_room; DROP TRIGGER no_row ON sessions").await.unwrap();
    r.healthy().await.unwrap();
    r.session_open(&session(ana.id), 9).await.unwrap();
    raw.close().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_a_process_that_stands_still_hold_back_no_other() {
    let scene = Scene::set().await;
    let link = Link::to(&scene.database).await;
    let stands = Registry::open(&link.address).await.unwrap();
    let raw = Raw::open(&scene.database.address).await;
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()";
    // Many at once: one of them is between two statements when nothing passes any more.
    let revoked: Vec<String> = (0..8).map(|n| format!("{n}")).collect();
    let revokes = revoked.iter().map(|jti| async { while stands.jwt_revoke(jti, at(900)).await.is_ok() {} });
    let stops = async {
        loop {
            link.set(LinkState::Silent);
            if raw.number(idle).await > 0 {
                break;
            }
            link.set(LinkState::Open);
            tokio::task::yield_now().await;
        }
        becomes("its transactions have ended", async || raw.number(idle).await == 0).await;
        let others = revoked.iter().map(|jti| scene.registry.jwt_revoke(jti, at(900)));
        let all = within_patience("the changes of another", futures::future::join_all(others)).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    };
    futures::join!(futures::future::join_all(revokes), stops);
    link.set(LinkState::Closed);
    stands.close().await.unwrap();
    raw.close().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_changes_are_told_as_anything() {
    let mut scene = Scene::set().await;
    let raw = Raw::open(&scene.database.address).await;
    let revoke = |from: usize, to: usize| {
        format!("INSERT INTO revoked_jwts (jti, expires_at) SELECT n::text, 9 FROM generate_series({from}, {to}) AS n")
    };
    raw.run(&revoke(1, CHANGES_AT_ONCE)).await.unwrap();
    assert_eq!(scene.reader.next().await.unwrap().unwrap().len(), CHANGES_AT_ONCE);
    raw.run(&revoke(CHANGES_AT_ONCE + 1, 2 * CHANGES_AT_ONCE + 1)).await.unwrap();
    assert_eq!(scene.reader.next().await.unwrap(), None);
    scene.reads(&[]).await;
    // They are kept for an hour.
    raw.run("UPDATE changes SET made = now() - interval '2 hours' WHERE id <> '7'").await.unwrap();
    scene.registry.changes_sweep().await.unwrap();
    assert_eq!(raw.number("SELECT count(*) FROM changes").await, 1);
    raw.close().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_in_a_file_has_no_changes_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("registry.db").display());
    let registry = Registry::open(&address).await.unwrap();
    assert!(registry.changes().await.is_err());
    registry.changes_sweep().await.unwrap();
    registry.close().await.unwrap();
}
