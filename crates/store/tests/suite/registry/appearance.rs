//! Promises for the appearance of organizations.

use isobar_model::appearance::{Branding, BrandingInput, Dashboard, DeviceTable, DeviceTableInput};
use isobar_model::ids::{DashboardId, OrganizationId};
use isobar_model::organization::OrganizationInput;

use super::boards::board_input;
use super::given::{self, at, json, may, refetched, sees};
use isobar_store::error::StoreError;
use isobar_store::registry::Registry;

/// Checks that a branding is stored, and that a change keeps omitted members and removes cleared ones.
pub async fn branding_is_stored_unchanged(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    let read = |text: &str| BrandingInput::read(&json(text).tree(), own).unwrap();
    assert_eq!(r.branding_fetch(&sees(own)).await.unwrap(), Branding::default());
    let all = r#"{"companyName": "Ünit", "addressLine1": "1", "addressLine2": "2", "domain": "a.example",
        "domainHTTPFileOverrides": {"b": 1.50, "a": null}, "domainPublicConfiguration": {}, "email": "a@a.example",
        "emailSenderName": "A"}"#;
    let kept = r.branding_update(&may(own), read(all)).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let expected = Branding {
        company_name: text("Ünit"),
        address_line_1: text("1"),
        address_line_2: text("2"),
        domain: text("a.example"),
        domain_http_file_overrides: Some(json(r#"{"b":1.50,"a":null}"#)),
        domain_public_configuration: Some(json("{}")),
        email: text("a@a.example"),
        email_sender_name: text("A"),
    };
    assert_eq!(kept, expected);
    let changed = r.branding_update(&may(own), read(r#"{"domain": null, "companyName": "B"}"#)).await.unwrap();
    assert_eq!(changed, Branding { domain: None, company_name: text("B"), ..expected });
    assert_eq!(r.branding_fetch(&sees(own)).await.unwrap(), changed);
    let nobody = may(OrganizationId(given::uuid()));
    assert!(matches!(r.branding_update(&nobody, read("{}")).await, Err(StoreError::Gone("organization"))));
    r.organization_delete(&may(own)).await.unwrap();
    assert_eq!(r.branding_fetch(&sees(own)).await.unwrap(), Branding::default());
}

/// Checks that the nearest inheritable dashboard is shown, and that an organization's own one takes precedence.
pub async fn dashboard_is_inherited_below(r: &Registry) {
    let top = given::organization(r, None, "Top").await;
    let middle = given::organization(r, Some(top.id), "Middle").await;
    let low = given::organization(r, Some(middle.id), "Low").await;
    let shown = async |id: OrganizationId| {
        r.dashboard_fetch(&sees(id)).await.unwrap().map(|dashboard| dashboard.configuration.text().to_owned())
    };
    let set = async |id: OrganizationId, text: &str| {
        r.dashboard_update(&may(id), board_input(text), DashboardId(given::uuid()), at(1)).await.unwrap()
    };
    let lends = async |id: OrganizationId, lends: bool| {
        let change =
            OrganizationInput { name: "x".to_owned(), children_inherit_dashboard: Some(lends), ..Default::default() };
        r.organization_update(&may(id), &change, None, at(1)).await.unwrap();
    };
    let kept = set(top.id, r#"{"name": "all", "options": {"o": 1.0}, "configuration": {"from": "top"}}"#).await;
    assert_eq!((kept.name.as_deref(), kept.options.text()), (Some("all"), r#"{"o":1.0}"#));
    assert_eq!(shown(low.id).await, None);
    lends(top.id, true).await;
    assert_eq!(shown(low.id).await.as_deref(), Some(r#"{"from":"top"}"#));
    set(middle.id, r#"{"configuration": {"from": "middle"}}"#).await;
    assert_eq!(shown(middle.id).await.as_deref(), Some(r#"{"from":"middle"}"#));
    assert_eq!(shown(low.id).await.as_deref(), Some(r#"{"from":"top"}"#));
    lends(middle.id, true).await;
    assert_eq!(shown(low.id).await.as_deref(), Some(r#"{"from":"middle"}"#));
    set(low.id, r#"{"configuration": {"from": "low"}}"#).await;
    assert_eq!(shown(low.id).await.as_deref(), Some(r#"{"from":"low"}"#));
    let changed = set(top.id, r#"{"configuration": {}}"#).await;
    assert_eq!(changed, Dashboard { configuration: json("{}"), ..kept });
    let nobody = sees(OrganizationId(given::uuid()));
    assert!(matches!(r.dashboard_fetch(&nobody).await, Err(StoreError::Gone("organization"))));
}

/// Checks that the device table is the organization's `deviceTable`, by both ways to write it.
pub async fn device_table_is_stored_with_its_organization(r: &Registry) {
    let own = given::organization(r, None, "Home").await.id;
    assert_eq!(r.device_table_fetch(&sees(own)).await.unwrap(), None);
    let text = format!(r#"{{"organizationId": "{own}", "columns": [{{"path": "name"}}]}}"#);
    let input = DeviceTableInput::read(&json(&text).tree(), own).unwrap();
    let kept = r.device_table_update(&may(own), Some(&input), at(4)).await.unwrap().unwrap();
    assert_eq!(DeviceTable::of(&kept).columns, input.columns);
    let home = refetched(r, own).await;
    assert_eq!((home.device_table, home.updated_at), (Some(kept.clone()), at(4)));
    assert_eq!(r.device_table_fetch(&sees(own)).await.unwrap(), Some(kept));
    assert_eq!(r.device_table_update(&may(own), None, at(5)).await.unwrap(), None);
    assert_eq!(refetched(r, own).await.device_table, None);
    let nobody = OrganizationId(given::uuid());
    assert!(matches!(r.device_table_fetch(&sees(nobody)).await, Err(StoreError::Gone("organization"))));
    assert!(matches!(r.device_table_update(&may(nobody), None, at(5)).await, Err(StoreError::Gone("organization"))));
}
