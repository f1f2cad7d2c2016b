//! Changes of one thing at the same time: none writes back what another has changed.

use isobar_model::check::Patch;
use isobar_model::json::Json;
use isobar_model::role::Role;
use isobar_model::user::User;

use super::given::{self, at, fetched, json, may, sees};
use crate::error::StoreError;
use crate::registry::{DeviceChange, DeviceReport, NewLabels, OrganizationChange, Registry, UserChange};

/// Rounds of changes that meet.
const ROUNDS: usize = 25;

/// Labels that a design or a webhook sets stay, and so does the status, whoever renames the device meanwhile.
pub async fn a_renamed_device_keeps_what_its_design_says_meanwhile(r: &Registry) {
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

/// Of changes of one user that name different members, each stays; and each is decided on the user as it then is.
pub async fn changes_of_one_user_at_the_same_time(r: &Registry) {
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

/// The same of organizations.
pub async fn changes_of_one_organization_at_the_same_time(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let permit = may(home.id);
    for round in 0..ROUNDS {
        let name = "Home".to_owned();
        let described = OrganizationChange {
            name: name.clone(),
            description: Patch::Set(format!("about {round}")),
            ..OrganizationChange::default()
        };
        let limited = OrganizationChange {
            name: name.clone(),
            device_count_limit: Some(round as f64),
            ..OrganizationChange::default()
        };
        let lent = OrganizationChange {
            name,
            children_inherit_dashboard: Some(round % 2 == 0),
            ..OrganizationChange::default()
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
