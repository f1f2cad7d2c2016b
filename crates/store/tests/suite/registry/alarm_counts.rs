//! Active alarms of devices: shown with each, and what lists are filtered by.

use isobar_model::alarm::{AlarmBegin, AlarmCounts, AlarmFinding, AlarmSeverity};
use isobar_model::device::Device;
use isobar_model::page::ListRequest;

use super::given::{self, at, fetched, lists_all, may};
use isobar_store::registry::{DeviceField, DeviceFilter, DeviceSelection, Findings, Registry};
use isobar_store::telemetry::{Operand, Operator};

/// Raises this many alarms of a severity, each under a key of its own; the last of them is cleared if
/// `is_last_cleared`.
pub(super) async fn raises(r: &Registry, device: &Device, severity: AlarmSeverity, count: i64, is_last_cleared: bool) {
    let found: Vec<_> = (1..=count)
        .map(|number| AlarmFinding {
            element: severity.name().to_owned(),
            key: number.to_string(),
            episode: number,
            begin: Some(AlarmBegin { title: "it is".to_owned(), severity, at: at(number) }),
            is_unlisted: true,
            count: 1,
            value: None,
            cleared_at: (is_last_cleared && number == count).then(|| at(number)),
            at: at(number),
        })
        .collect();
    let alarms = found.iter().map(|finding| (may(device.reference()), finding)).collect();
    r.findings_write(&Findings { alarms, ..Findings::default() }, at(9)).await.unwrap();
}

/// Checks that only active alarms count, and that filters find devices by them, also where most devices have none.
pub async fn device_list_counts_and_filters_active_alarms(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    let mut devices = Vec::new();
    for name in ["a", "b", "c", "d"] {
        devices.push(given::device(r, home, project, name).await);
    }
    raises(r, &devices[0], AlarmSeverity::Critical, 2, false).await;
    raises(r, &devices[1], AlarmSeverity::Critical, 2, true).await;
    raises(r, &devices[1], AlarmSeverity::Info, 1, false).await;
    raises(r, &devices[2], AlarmSeverity::Warning, 1, true).await;
    let mut shown = Vec::new();
    for device in &devices {
        shown.push(fetched(r, device.reference()).await);
    }
    let counts = |critical, info| AlarmCounts { critical, warning: 0, info };
    assert_eq!(
        shown.iter().map(|device| device.alarms).collect::<Vec<_>>(),
        [counts(2, 0), counts(1, 1), counts(0, 0), counts(0, 0)]
    );
    type Passes = fn(u64, &[u64]) -> bool;
    let numbers: [(Operator, &[u64], Passes); 8] = [
        (Operator::Eq, &[2], |count, of| of.contains(&count)),
        (Operator::Eq, &[0], |count, of| of.contains(&count)),
        (Operator::Ne, &[1], |count, of| !of.contains(&count)),
        (Operator::Gt, &[0], |count, of| count > of[0]),
        (Operator::Gte, &[0], |count, of| count >= of[0]),
        (Operator::Lt, &[2], |count, of| count < of[0]),
        (Operator::In, &[0, 2], |count, of| of.contains(&count)),
        (Operator::Nin, &[0, 2], |count, of| !of.contains(&count)),
    ];
    for severity in AlarmSeverity::ALL {
        for (operator, of, passes) in numbers {
            let operands = of.iter().map(|number| Operand::Number(number.to_string())).collect();
            let filter = DeviceFilter { field: DeviceField::Alarms(severity), operator, operands };
            let selection = DeviceSelection { filters: vec![filter.clone()], ..DeviceSelection::default() };
            let page = r.devices_selected(&lists_all(), &ListRequest::default(), &selection).await.unwrap();
            let expected: Vec<_> = shown.iter().filter(|device| passes(device.alarms.of(severity), of)).collect();
            assert_eq!(page.items.iter().collect::<Vec<_>>(), expected, "{filter:?}");
            let summary = r.device_summary(&lists_all(), &selection, at(10)).await.unwrap();
            assert_eq!((page.total, summary.total), (expected.len() as u64, expected.len() as u64), "{filter:?}");
        }
    }
}
