//! Concurrent changes of one resource: none overwrites another.

use isobar_model::appearance::{BrandingInput, DeviceTable, DeviceTableInput};
use isobar_model::check::Patch;
use isobar_model::ids::DashboardId;
use isobar_model::json::Json;
use isobar_model::organization::OrganizationInput;
use isobar_model::role::Role;
use isobar_model::user::User;

use super::boards::board_input;
use super::given::{self, at, fetched, json, may, refetched, sees};
use super::timers::designs;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceChange, DeviceReport, NewLabels, Registry, UserChange};

/// Rounds of concurrent changes.
const ROUNDS: usize = 25;

/// Checks that a rename keeps the labels and the status that a design or a webhook sets meanwhile.
pub async fn renamed_device_keeps_concurrent_reports(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let device = given::device(r, home, project, "d").await;
    let permit = may(device.reference());
    for round in 0..ROUNDS {
        let named = DeviceChange { name: format!("d{round}"), ..given::unchanged(&device) };
        let described = DeviceChange {
            description: Patch::Set(format!("about {round}")),
            name: format!("d{round}"),
            ..named.clone()
        };
        let label = |kind: &str| (format!("{kind}{round}"), json("1"));
        let report = DeviceReport { meta: vec![label("design")], ..DeviceReport::default() };
        let labels = NewLabels { missing: vec![label("webhook")], set: Vec::new() };
        let permits = [may(device.reference())];
        let (first, (), third, fourth) = tokio::join!(
            r.device_update(&permit, &named, at(1)),
            given::reports(r, device.reference(), &report, at(1)),
            r.device_update(&permit, &described, at(1)),
            r.devices_label(&permits, &labels, at(1)),
        );
        first.unwrap();
        third.unwrap();
        fourth.unwrap();
        let now = fetched(r, device.reference()).await;
        assert_eq!((now.name, now.description), (format!("d{round}"), Some(format!("about {round}"))));
        let Json::Object(members) = now.meta.tree() else { panic!("{:?}", now.meta) };
        assert_eq!(members.len(), 2 * (round + 1), "round {round}: a label is gone: {:?}", now.meta);
    }
}

/// Checks that concurrent changes of different members of one user all hold, and that each is decided on the current user.
pub async fn concurrent_changes_of_a_user_are_all_kept(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let ana = given::user(r, home, "ana").await;
    let permit = may(ana.id);
    for round in 0..ROUNDS {
        let text = format!("round {round}");
        let named =
            |user: User| Ok::<_, StoreError>(UserChange { first_name: text.clone(), ..given::unchanged_user(&user) });
        let titled = |user: User| {
            Ok::<_, StoreError>(UserChange { job_title: Some(text.clone()), ..given::unchanged_user(&user) })
        };
        let ranked = |user: User| {
            let role = if user.role == Role::Manager { Role::Developer } else { Role::Manager };
            Ok::<_, StoreError>(UserChange { role, ..given::unchanged_user(&user) })
        };
        let before = given::user_fetched(r, ana.id).await;
        let (first, second, third) = tokio::join!(
            r.user_update(&permit, named, at(1)),
            r.user_update(&permit, titled, at(1)),
            r.user_update(&permit, ranked, at(1)),
        );
        first.unwrap().unwrap();
        second.unwrap().unwrap();
        third.unwrap().unwrap();
        let now = given::user_fetched(r, ana.id).await;
        assert_eq!((&now.first_name, now.job_title.as_ref()), (&text, Some(&text)), "round {round}");
        assert_ne!(now.role, before.role, "round {round}");
    }
    let refused = r.user_update(&permit, |user: User| Err::<UserChange, _>(user.first_name), at(2)).await.unwrap();
    assert_eq!(refused.unwrap_err(), format!("round {}", ROUNDS - 1));
}

/// Checks the same for organizations.
pub async fn concurrent_changes_of_an_organization_are_all_kept(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let permit = may(home.id);
    for round in 0..ROUNDS {
        let name = "Home".to_owned();
        let described = OrganizationInput {
            name: name.clone(),
            description: Patch::Set(format!("about {round}")),
            ..OrganizationInput::default()
        };
        let limited = OrganizationInput {
            name: name.clone(),
            device_count_limit: Some(round as f64),
            ..OrganizationInput::default()
        };
        let lent = OrganizationInput {
            name,
            children_inherit_dashboard: Some(round % 2 == 0),
            ..OrganizationInput::default()
        };
        let (first, second, third) = tokio::join!(
            r.organization_update(&permit, &described, None, at(1)),
            r.organization_update(&permit, &limited, None, at(1)),
            r.organization_update(&permit, &lent, None, at(1)),
        );
        first.unwrap();
        second.unwrap();
        third.unwrap();
        let now = r.organization_fetch(&sees(home.id)).await.unwrap().unwrap();
        assert_eq!(now.description, Some(format!("about {round}")));
        assert_eq!((now.device_count_limit, now.children_inherit_dashboard), (round as f64, round % 2 == 0));
    }
}

/// Checks the same for the appearance of an organization: its branding, its dashboard, and its device table, which can
/// be written in two ways.
pub async fn concurrent_changes_of_an_appearance_are_all_kept(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let permit = may(own);
    let device = given::device(r, own, given::project(r, own, "p").await.id, "d").await.id.to_string();
    for round in 0..ROUNDS {
        let text = format!("{round}");
        let branded = |member: &str| {
            let body = json(&format!(r#"{{"{member}": "{text}"}}"#));
            r.branding_update(&permit, BrandingInput::read(&body.tree(), own).unwrap())
        };
        let (first, second, third) =
            tokio::join!(branded("companyName"), branded("addressLine2"), branded("emailSenderName"));
        for changed in [first, second, third] {
            changed.unwrap();
        }
        let now = r.branding_fetch(&sees(own)).await.unwrap();
        for member in [now.company_name, now.address_line_2, now.email_sender_name] {
            assert_eq!(member.as_ref(), Some(&text), "branding, round {round}");
        }

        let put = |members: &str| {
            let body = json(&format!(r#"{{{members}, "configuration": {{"round": {round}}}}}"#));
            r.dashboard_update(&permit, board_input(body.text()), DashboardId(given::uuid()), at(1))
        };
        let named = format!(r#""name": "{round}""#);
        let chosen = format!(r#""options": {{"n": {round}}}"#);
        let (first, second) = tokio::join!(put(&named), put(&chosen));
        for changed in [first, second] {
            changed.unwrap();
        }
        let now = r.dashboard_fetch(&sees(own)).await.unwrap().unwrap();
        assert_eq!((now.name.as_ref(), now.options.text()), (Some(&text), &*format!(r#"{{"n":{round}}}"#)));

        // Each way to write the table keeps the members that only the other knows, and the organization's other data.
        let table = |members: &str| {
            let body = format!(r#"{{"organizationId": "{own}", "columns": [{{"path": "{round}"}}]{members}}}"#);
            DeviceTableInput::read(&json(&body).tree(), own).unwrap()
        };
        let (for_nobody, for_device) = (table(r#", "deviceId": """#), table(&format!(r#", "deviceId": "{device}""#)));
        r.device_table_update(&permit, Some(&for_nobody), at(1)).await.unwrap();
        let columns = table("");
        let change = OrganizationInput { name: "Home".to_owned(), ..OrganizationInput::default() };
        let wide = json(&format!(r#"{{"columns": [], "deviceId": "{device}", "width": {round}}}"#));
        let wide = OrganizationInput { device_table: Patch::Set(wide), ..change.clone() };
        let described = OrganizationInput { description: Patch::Set(text.clone()), ..change };
        let (first, second, third, fourth) = tokio::join!(
            r.device_table_update(&permit, Some(&columns), at(1)),
            r.device_table_update(&permit, Some(&for_device), at(1)),
            r.organization_update(&permit, &wide, None, at(1)),
            r.organization_update(&permit, &described, None, at(1)),
        );
        for changed in [first, second] {
            changed.unwrap();
        }
        for changed in [third, fourth] {
            changed.unwrap();
        }
        let now = refetched(r, own).await;
        assert_eq!(now.description.as_ref(), Some(&text), "round {round}");
        let now = now.device_table.unwrap();
        assert_eq!(DeviceTable::of(&now).device.as_ref(), Some(&device), "round {round}: {now:?}");
        assert_eq!(now.tree().get("width"), Some(&json(&text).tree()), "round {round}: {now:?}");
    }
}

/// Checks the same for projects: a rename and a move are both kept, whatever devices and designs are written meanwhile.
pub async fn concurrent_changes_of_a_project_are_all_kept(r: &Registry) {
    let homes = [given::organization(r, None, "L").await.id, given::organization(r, None, "R").await.id];
    let project = given::project(r, homes[0], "p").await.id;
    let permit = may(project);
    for round in 0..ROUNDS {
        let (name, to) = (format!("p{round}"), homes[(round + 1) % 2]);
        let (named, moved, (), _) = tokio::join!(
            r.project_update(&permit, &name, None, at(1)),
            r.project_update(&permit, &name, Some(to), at(1)),
            designs(r, project, &[], 1),
            given::device(r, homes[0], project, "d"),
        );
        named.unwrap();
        moved.unwrap();
        let now = r.project_fetch(&sees(project)).await.unwrap().unwrap();
        assert_eq!((now.name, now.organization), (name, to), "round {round}");
        let specification = r.specification_fetch(&sees(project)).await.unwrap().unwrap();
        assert_eq!(specification.name, "designed", "round {round}");
    }
    assert_eq!(r.check().await.unwrap(), Vec::<String>::new());
}
