//! Notifies administrators when their organization approaches a limit (contract: Resources): once for each crossing.

use isobar_model::ids::NotificationId;
use isobar_model::limits::Fill;
use isobar_model::notification::{Audience, Notice, NotificationKind};
use isobar_model::organization::BYTES_PER_MB;
use isobar_model::role::Role;
use isobar_store::error::StoreError;
use isobar_store::registry::{Alert, LimitedOrganization, Used};

use super::usage::Usage;

/// One limit and its usage.
struct MeasuredLimit {
    what: Used,
    used: f64,
    limit: f64,
    alert: Alert,
}

impl Usage {
    /// Checks both limits of an organization.
    pub(crate) async fn tell_of_limits(&self, organization: &LimitedOrganization) -> Result<(), StoreError> {
        let devices = MeasuredLimit {
            what: Used::Devices,
            used: organization.device_count as f64,
            limit: organization.device_count_limit,
            alert: organization.devices,
        };
        let data = MeasuredLimit {
            what: Used::Data,
            used: organization.bytes_stored as f64 / BYTES_PER_MB,
            limit: organization.data_usage_mb_limit,
            alert: organization.data,
        };
        for measured in [devices, data] {
            self.tell_of_limit(organization, &measured).await?;
        }
        Ok(())
    }

    /// Records the crossing of a threshold, notifies, and records the notice, in this order: the next check completes a
    /// sequence that a crash has interrupted, and the notice's identifier is derived from the crossing.
    async fn tell_of_limit(&self, of: &LimitedOrganization, measured: &MeasuredLimit) -> Result<(), StoreError> {
        let mut alert = measured.alert;
        let fill = alert.fill.after(measured.used, measured.limit);
        if fill != alert.fill {
            alert = Alert { fill, since: self.env.new_id().minted_at(), told: fill < alert.fill };
            let registry = self.env.registry();
            if !registry.organization_alert_set(of.id, measured.what, measured.alert, alert).await? {
                // Another node was faster, and notifies; if it ends before that, the next check does.
                self.unsettle();
                return Ok(());
            }
        }
        if alert.told {
            return Ok(());
        }
        let id = of.id.to_string();
        let notice = Notice {
            id: NotificationId::derived(
                alert.since,
                &["limit", &id, measured.what.name(), &fill.percent().to_string()],
            ),
            kind: NotificationKind::System,
            to: Audience::Organization { id: of.id, minimum_role: Role::Administrator },
            message: message(&of.name, measured, fill),
            device: None,
            alarm: None,
            at: alert.since,
        };
        if let Err(error) = self.delivery.notify(notice).await {
            // The next check tries again.
            tracing::warn!(%error, organization = %of.id, "administrators could not be told of a limit");
            self.unsettle();
            return Ok(());
        }
        let told = Alert { told: true, ..alert };
        self.env.registry().organization_alert_set(of.id, measured.what, alert, told).await.map(drop)
    }
}

fn message(name: &str, measured: &MeasuredLimit, fill: Fill) -> String {
    let (what, consequence) = match measured.what {
        Used::Devices => ("devices", "No more devices can be added."),
        Used::Data => ("megabytes of stored data", "New events are kept in history, but their values are not stored."),
    };
    let percent = fill.percent();
    let says = format!("{name} has reached {percent}% of its limit of {} {what}.", measured.limit);
    if fill == Fill::Full { format!("{says} {consequence}") } else { says }
}

#[cfg(test)]
mod tests {
    use isobar_model::access;
    use isobar_model::json::parse;
    use isobar_model::organization::OrganizationInput;

    use super::*;
    use crate::stage::Stage;

    #[tokio::test]
    async fn crossing_that_two_nodes_have_seen_is_told_once() {
        let stage = Stage::set().await;
        let device = stage.device_of_another_tenant("{}").await;
        let (usage, registry) = (&stage.hub.0.usage, stage.hub.0.env.registry());
        let input = parse(r#"{"name": "limited", "deviceCountLimit": 1}"#).unwrap();
        let permit = access::system(device.organization, "a test sets a limit");
        let input = OrganizationInput::read(&input).unwrap();
        registry.organization_update(&permit, &input, None, stage.clock.now()).await.unwrap();
        // Two nodes read the same.
        let [seen] = &*registry.organizations_limited().await.unwrap() else { panic!("one organization") };
        let recorded = async || registry.organizations_limited().await.unwrap()[0].devices;
        usage.tell_of_limits(seen).await.unwrap();
        let first = recorded().await;
        assert_eq!((first.fill, first.told), (Fill::Full, true));
        stage.clock.advance_seconds(1);
        usage.tell_of_limits(seen).await.unwrap();
        assert_eq!(recorded().await, first, "the second node records and notifies of no other crossing");
        stage.over().await;
    }
}
