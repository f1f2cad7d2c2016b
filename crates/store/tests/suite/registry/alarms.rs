//! Alarms of devices.

use isobar_model::access::CanWrite;
use isobar_model::alarm::{
    Alarm, AlarmAct, AlarmBegin, AlarmChange, AlarmCounts, AlarmEntry, AlarmFinding, AlarmSeverity, AlarmState,
    AlarmSummary, LIVING_ALARMS_MAX, NO_EPISODE, PAST_ALARMS_MAX,
};
use isobar_model::check::Patch;
use isobar_model::device::Device;
use isobar_model::ids::{AlarmId, DeviceRef, EventId, OrganizationId, UserId};
use isobar_model::notification::{Audience, Notice, NotificationKind};
use isobar_model::page::ListRequest;
use isobar_model::role::Role;
use isobar_model::time::Timestamp;
use uuid::Uuid;

use super::given::{self, at, json, may, page, sees, sorted, user_may};
use isobar_store::registry::{AlarmField, AlarmFilter, AlarmWrite, Assigned, Findings, Registry};
use isobar_store::telemetry::{Operand, Operator};

async fn device(r: &Registry, home: OrganizationId, name: &str) -> Device {
    let project = given::project(r, home, "p").await.id;
    given::device(r, home, project, name).await
}

async fn fridge(r: &Registry) -> Device {
    let home = given::organization(r, None, "Home").await.id;
    device(r, home, "fridge").await
}

/// Returns an alarm that became active at a moment, which is its episode too, and was raised this often since.
fn raised(key: &str, episode: i64, count: u64) -> AlarmFinding {
    AlarmFinding {
        element: "warm".to_owned(),
        key: key.to_owned(),
        episode,
        begin: Some(AlarmBegin { title: "too warm".to_owned(), severity: AlarmSeverity::Warning, at: at(episode) }),
        is_unlisted: true,
        count,
        value: Some(json(&count.to_string())),
        cleared_at: None,
        at: at(episode),
    }
}

/// Returns the same episode, cleared later.
fn cleared(key: &str, episode: i64, count: u64, moment: i64) -> AlarmFinding {
    let raised = raised(key, episode, count);
    AlarmFinding { begin: None, value: None, cleared_at: Some(at(moment)), at: at(moment), ..raised }
}

async fn finds(r: &Registry, device: &Device, findings: &[AlarmFinding]) {
    let permit = may(device.reference());
    let alarms = findings.iter().map(|finding| (permit.clone(), finding)).collect();
    r.findings_write(&Findings { alarms, ..Findings::default() }, at(0)).await.unwrap();
}

async fn all(r: &Registry) -> Vec<Alarm> {
    r.alarm_list(&given::lists_all(), &page(1, 10_000), &[]).await.unwrap().items
}

async fn history(r: &Registry, device: &Device, id: AlarmId) -> Vec<AlarmEntry> {
    r.alarm_fetch(&sees(device.reference()), id).await.unwrap().unwrap().1
}

async fn acts(r: &Registry, device: &Device, id: AlarmId) -> Vec<AlarmAct> {
    history(r, device, id).await.iter().map(|entry| entry.what).collect()
}

/// Names a change of this moment.
fn event(moment: i64) -> EventId {
    EventId(Uuid::from_u128((at(moment).millis() as u128) << 80 | 7 << 76 | 2 << 62))
}

async fn changes(r: &Registry, permit: CanWrite<DeviceRef>, id: AlarmId, change: AlarmChange, moment: i64) -> Alarm {
    let device = *permit.target();
    let alarm_writes = vec![(permit, AlarmWrite { id, change, event: event(moment) })];
    r.findings_write(&Findings { alarm_writes, ..Findings::default() }, at(0)).await.unwrap();
    r.alarm_fetch(&sees(device), id).await.unwrap().unwrap().0
}

async fn acknowledges(r: &Registry, device: &Device, id: AlarmId, moment: i64) {
    let change = AlarmChange { acknowledged: Some(true), ..AlarmChange::default() };
    assert!(changes(r, may(device.reference()), id, change, moment).await.acknowledged);
}

/// Checks that findings of one episode are one alarm, and that a finding written again, in part or as a whole, is
/// counted once.
pub async fn repeated_alarm_is_one_and_counted_once(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("", 1, 1)]).await;
    let later = AlarmFinding { begin: None, at: at(3), ..raised("", 1, 4) };
    for findings in [vec![later.clone()], vec![raised("", 1, 1)], vec![later]] {
        finds(r, &device, &findings).await;
        let [alarm] = &all(r).await[..] else { panic!("there is one") };
        assert_eq!((alarm.count, alarm.state, alarm.raised_at), (4, AlarmState::Active, at(1)));
    }
    let [alarm] = &all(r).await[..] else { panic!("there is one") };
    assert_eq!((alarm.device, &*alarm.device_name, &*alarm.title), (device.id, "fridge", "too warm"));
    assert_eq!((alarm.organization, alarm.project, alarm.created_at), (device.organization, device.project, at(1)));
    assert_eq!(acts(r, &device, alarm.id).await, [AlarmAct::Raised]);
}

/// Checks that a cleared and acknowledged alarm is over, so that the next finding makes another one, and that until
/// then it is the same.
pub async fn an_alarm_lives_until_it_is_cleared_and_acknowledged(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("a", 1, 2)]).await;
    let first = all(r).await[0].id;
    finds(r, &device, &[cleared("a", 1, 2, 2), raised("a", 3, 1)]).await;
    let alarm = all(r).await.remove(0);
    assert_eq!((alarm.id, alarm.count, alarm.raised_at, alarm.cleared_at), (first, 3, at(3), None));
    acknowledges(r, &device, first, 4).await;
    acknowledges(r, &device, first, 5).await;
    finds(r, &device, &[cleared("a", 3, 1, 6)]).await;
    assert_eq!(
        acts(r, &device, first).await,
        [AlarmAct::Raised, AlarmAct::Cleared, AlarmAct::Raised, AlarmAct::Acknowledged, AlarmAct::Cleared]
    );
    // An alarm that is over stays as it is when findings are written again.
    finds(r, &device, &[raised("a", 3, 1), cleared("a", 3, 1, 6)]).await;
    finds(r, &device, &[raised("a", 7, 1)]).await;
    let alarms = all(r).await;
    assert_eq!(alarms.iter().map(|alarm| alarm.state).collect::<Vec<_>>(), [AlarmState::Active, AlarmState::Cleared]);
    assert!(alarms[0].id != first && alarms[1].id == first && alarms[1].acknowledged && !alarms[0].acknowledged);
    let back = AlarmChange { acknowledged: Some(false), ..AlarmChange::default() };
    assert!(changes(r, may(device.reference()), first, back, 8).await.acknowledged);
}

/// Checks that one batch may have several alarms of a device and key, one after the other.
pub async fn alarm_cleared_and_raised_in_one_batch_is_two(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("", 1, 1)]).await;
    let first = all(r).await[0].id;
    acknowledges(r, &device, first, 2).await;
    finds(r, &device, &[cleared("", 1, 5, 3), raised("", 4, 2)]).await;
    let alarms = all(r).await;
    let told: Vec<_> = alarms.iter().map(|alarm| (alarm.state, alarm.count, alarm.id == first)).collect();
    assert_eq!(told, [(AlarmState::Active, 2, false), (AlarmState::Cleared, 5, true)]);
}

/// Checks that a raise of a known period adds the alarm to a list that lacks it, as a list of an earlier moment does.
pub async fn alarm_raised_again_is_added_to_a_list_that_lacks_it(r: &Registry) {
    let device = fridge(r).await;
    let later = AlarmFinding { at: at(5), is_unlisted: false, ..raised("", 1, 4) };
    finds(r, &device, std::slice::from_ref(&later)).await;
    let [alarm] = &all(r).await[..] else { panic!("there is one") };
    assert_eq!((alarm.count, alarm.raised_at, alarm.updated_at, &*alarm.title), (4, at(1), at(5), "too warm"));
    assert_eq!(acts(r, &device, alarm.id).await, [AlarmAct::Raised]);
}

/// Checks that the device's own state counts where the list is of a later moment: it shows as cleared or over what is
/// active, or has another period of it.
pub async fn alarm_of_a_later_list_follows_what_is_newer(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("a", 1, 1), raised("b", 1, 1), raised("c", 1, 1)]).await;
    for alarm in all(r).await.iter().filter(|alarm| alarm.key == "b") {
        acknowledges(r, &device, alarm.id, 2).await;
    }
    finds(r, &device, &[cleared("a", 1, 1, 3), cleared("b", 1, 1, 3), cleared("c", 1, 1, 3), raised("c", 4, 1)]).await;
    // What was found before the list's last change is written again, and changes nothing.
    finds(r, &device, &[raised("a", 1, 1), raised("b", 1, 1), raised("c", 1, 1), cleared("c", 1, 1, 3)]).await;
    let states = async || {
        let mut listed = all(r).await;
        listed.sort_by(|a, b| a.key.cmp(&b.key));
        listed.into_iter().map(|alarm| (alarm.key, alarm.state, alarm.cleared_at)).collect::<Vec<_>>()
    };
    let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
    let (active, over) = (AlarmState::Active, AlarmState::Cleared);
    let earlier = [(a.clone(), over, Some(at(3))), (b.clone(), over, Some(at(3))), (c.clone(), active, None)];
    assert_eq!(states().await, earlier);
    let again = |key: &str| AlarmFinding { at: at(9), ..raised(key, 1, 2) };
    let newer = [again("a"), again("b"), again("c")];
    for _ in 0..2 {
        finds(r, &device, &newer).await;
        assert_eq!(states().await, [(a.clone(), active, None), (b.clone(), active, None), (c.clone(), active, None)]);
    }
    let reopened = all(r).await.into_iter().find(|alarm| alarm.key == "b").unwrap();
    assert_eq!(
        acts(r, &device, reopened.id).await,
        [AlarmAct::Raised, AlarmAct::Acknowledged, AlarmAct::Cleared, AlarmAct::Raised]
    );
    finds(r, &device, &[cleared("a", 1, 2, 10), cleared("b", 1, 2, 10), cleared("c", 1, 2, 10)]).await;
    assert!(states().await.iter().all(|(_, state, cleared_at)| (*state, *cleared_at) == (over, Some(at(10)))));
}

/// Checks that an alarm which the device's state does not have is cleared in the list, unless it was raised since.
pub async fn alarm_that_only_the_list_has_is_cleared(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("a", 5, 1), raised("b", 5, 1)]).await;
    let listed = r.alarms_listed(&[sees(device.reference())]).await.unwrap();
    let listed = listed.get(&device.key).unwrap();
    assert!(listed.count() == 2 && listed.contains("warm", "a") && listed.contains("warm", "b"));
    let clear = |key: &str, moment| cleared(key, NO_EPISODE, 0, moment);
    finds(r, &device, &[clear("a", 6), clear("b", 4), clear("unknown", 6)]).await;
    let states: Vec<_> = all(r).await.into_iter().map(|alarm| (alarm.key, alarm.state)).collect();
    assert_eq!(states, [("b".to_owned(), AlarmState::Active), ("a".to_owned(), AlarmState::Cleared)]);
    finds(r, &device, &[raised("a", 7, 1), clear("a", 6)]).await;
    assert_eq!(r.alarms_listed(&[sees(device.reference())]).await.unwrap().get(&device.key).unwrap().count(), 2);
}

/// Checks that a user's change is stored with its author, and that an alarm of another device is not changed.
pub async fn alarm_change_is_noted_with_its_author(r: &Registry) {
    let (device, ana) = (fridge(r).await, UserId(given::uuid()));
    let other = self::device(r, device.organization, "other").await;
    finds(r, &device, &[raised("", 1, 1)]).await;
    let id = all(r).await[0].id;
    let change = AlarmChange {
        acknowledged: Some(true),
        clears: true,
        comment: Some("opened \0 it".to_owned()),
        assignee: Patch::Set(ana),
    };
    let alarm_writes = vec![(may(other.reference()), AlarmWrite { id, change: change.clone(), event: event(2) })];
    r.findings_write(&Findings { alarm_writes, ..Findings::default() }, at(0)).await.unwrap();
    assert!(r.alarm_fetch(&sees(other.reference()), id).await.unwrap().is_none());
    let changed = changes(r, user_may(ana, device.reference()), id, change.clone(), 2).await;
    assert_eq!((changed.assignee, changed.acknowledged_by, changed.acknowledged), (Some(ana), Some(ana), true));
    // Written again it is the same; what is only said is said once.
    changes(r, user_may(ana, device.reference()), id, change, 2).await;
    let says = AlarmChange { comment: Some("done".to_owned()), ..AlarmChange::default() };
    for _ in 0..2 {
        changes(r, user_may(ana, device.reference()), id, says.clone(), 3).await;
    }
    let entries = history(r, &device, id).await;
    let told: Vec<_> = entries.iter().map(|entry| (entry.what, entry.by, entry.comment.as_deref())).collect();
    assert_eq!(
        told,
        [
            (AlarmAct::Raised, None, None),
            (AlarmAct::Cleared, Some(ana), Some("opened  it")),
            (AlarmAct::Acknowledged, Some(ana), None),
            (AlarmAct::Assigned, Some(ana), None),
            (AlarmAct::Comment, Some(ana), Some("done")),
        ]
    );
    assert_eq!(r.alarm_device(id).await.unwrap(), Some(device.id));
    assert_eq!(r.alarm_of_notice(device.id, ("warm", "")).await.unwrap(), Some(id));
    assert_eq!(r.alarm_of_notice(other.id, ("warm", "")).await.unwrap(), None);
}

/// Checks that alarms are taken from users who are gone, disabled or elsewhere, once and with an entry, and stay with
/// those who see them.
pub async fn alarm_is_taken_from_an_assignee_who_cannot_see_it(r: &Registry) {
    let device = fridge(r).await;
    let away = given::organization(r, None, "Away").await;
    let [here, there] = [given::user(r, device.organization, "here").await, given::user(r, away.id, "there").await];
    finds(r, &device, &[raised("a", 1, 1), raised("b", 1, 1), raised("c", 1, 1)]).await;
    for (key, user) in [("a", here.id), ("b", there.id), ("c", UserId(given::uuid()))] {
        let alarm = all(r).await.into_iter().find(|alarm| alarm.key == key).unwrap();
        let change = AlarmChange { assignee: Patch::Set(user), ..AlarmChange::default() };
        changes(r, may(device.reference()), alarm.id, change, 2).await;
    }
    let count = async |of| r.alarms_unassign(of, at(3)).await.unwrap().len();
    assert_eq!((count(Assigned::To(here.id)).await, count(Assigned::To(there.id)).await), (0, 1));
    assert_eq!((count(Assigned::Of(device.key)).await, count(Assigned::Anywhere).await), (1, 0));
    for alarm in all(r).await {
        let assignee = (alarm.key == "a").then_some(here.id);
        assert_eq!((alarm.assignee, alarm.updated_at), (assignee, if assignee.is_some() { at(2) } else { at(3) }));
        let mut expected = vec![AlarmAct::Raised, AlarmAct::Assigned];
        expected.extend(assignee.is_none().then_some(AlarmAct::Assigned));
        assert_eq!(acts(r, &device, alarm.id).await, expected);
    }
    r.user_delete(&may(here.id)).await.unwrap();
    assert_eq!((count(Assigned::Anywhere).await, count(Assigned::Anywhere).await), (1, 0));
}

/// Checks that alarms are listed by urgency, and filtered and counted within a part of the tree.
pub async fn alarms_are_listed_filtered_and_counted(r: &Registry) {
    let device = fridge(r).await;
    let away = given::organization(r, None, "Away").await;
    let strange = self::device(r, away.id, "strange").await;
    let critical = |mut finding: AlarmFinding| {
        finding.begin.as_mut().unwrap().severity = AlarmSeverity::Critical;
        finding
    };
    finds(r, &device, &[raised("a", 1, 1), critical(raised("b", 2, 1)), raised("c", 3, 1), raised("d", 4, 1)]).await;
    finds(r, &device, &[cleared("d", 4, 1, 5)]).await;
    finds(r, &strange, &[raised("x", 6, 1)]).await;
    let home = given::lists(&device.lineage, None);
    let keys = async |request: &ListRequest, filters: &[AlarmFilter]| {
        let listed = r.alarm_list(&home, request, filters).await.unwrap();
        listed.items.into_iter().map(|alarm| alarm.key).collect::<String>()
    };
    assert_eq!(keys(&page(1, 10), &[]).await, "bcad");
    assert_eq!(keys(&page(2, 2), &[]).await, "ad");
    assert_eq!(keys(&sorted(&["raisedAt"]), &[]).await, "abcd");
    let filter = |field, operator, operand| AlarmFilter { field, operator, operands: vec![operand] };
    for (filter, found) in [
        (filter(AlarmField::State, Operator::Eq, Operand::Number("1".to_owned())), "d"),
        (filter(AlarmField::Severity, Operator::Gte, Operand::Number("2".to_owned())), "b"),
        (filter(AlarmField::Acknowledged, Operator::Eq, Operand::Bool(true)), ""),
        (filter(AlarmField::Assignee, Operator::Eq, Operand::Null), "bcad"),
        (filter(AlarmField::RaisedAt, Operator::Gt, Operand::Time(at(2))), "cd"),
        (filter(AlarmField::Device, Operator::Eq, Operand::Text(strange.id.to_string())), ""),
        (filter(AlarmField::Element, Operator::Ne, Operand::Text("warm".to_owned())), ""),
        (filter(AlarmField::Key, Operator::Eq, Operand::Text("a".to_owned())), "a"),
        (filter(AlarmField::Project, Operator::Eq, Operand::Text(device.project.to_string())), "bcad"),
    ] {
        assert_eq!(keys(&page(1, 10), std::slice::from_ref(&filter)).await, found, "{filter:?}");
    }
    let active = AlarmCounts { critical: 1, warning: 2, info: 0 };
    assert_eq!(r.alarm_summary(&home).await.unwrap(), AlarmSummary { active, unacknowledged: 4 });
    let counts = r.alarm_counts(&[sees(device.reference())]).await.unwrap();
    assert_eq!((counts.len(), counts.get(&device.key)), (1, Some(&active)));
}

/// Checks that a device takes its alarms along when it moves.
pub async fn alarms_move_with_their_device(r: &Registry) {
    let device = fridge(r).await;
    let away = given::organization(r, None, "Away").await;
    finds(r, &device, &[raised("", 1, 1)]).await;
    let change = isobar_store::registry::DeviceChange { organization: Some(away.id), ..given::unchanged(&device) };
    r.device_update(&may(device.reference()), &change, at(2)).await.unwrap();
    let there = r.alarm_list(&given::lists(&away.lineage, None), &page(1, 10), &[]).await.unwrap();
    assert_eq!((there.total, there.items[0].organization), (1, away.id));
    assert_eq!(r.alarm_list(&given::lists(&device.lineage, None), &page(1, 10), &[]).await.unwrap().total, 0);
    r.device_delete(&may(device.reference())).await.unwrap();
    assert!(all(r).await.is_empty());
    finds(r, &device, &[raised("", 4, 1)]).await;
    assert!(all(r).await.is_empty());
}

/// Checks that alarms which ended long ago are removed, and that those that are not over stay at any age.
// Holds: c18.alarmsKept
pub async fn ended_alarms_are_removed_eventually(r: &Registry) {
    let device = fridge(r).await;
    finds(r, &device, &[raised("a", 1, 1), raised("b", 1, 1), raised("c", 1, 1)]).await;
    for (key, moment) in [("a", 5), ("b", 6)] {
        let alarm = all(r).await.into_iter().find(|alarm| alarm.key == key).unwrap();
        acknowledges(r, &device, alarm.id, 2).await;
        finds(r, &device, &[cleared(key, 1, 1, moment)]).await;
    }
    assert_eq!(r.alarms_sweep(at(6), 10).await.unwrap(), 1);
    let keys: Vec<_> = all(r).await.into_iter().map(|alarm| alarm.key).collect();
    assert_eq!(keys, ["c", "b"]);
}

/// Checks the limit of a device's alarms that are not over: new ones replace the oldest cleared ones, and active ones
/// stay.
pub async fn active_alarms_of_a_device_are_bounded(r: &Registry) {
    let device = fridge(r).await;
    let many = |prefix: &str, count: usize, from: i64, clears: bool| -> Vec<AlarmFinding> {
        let one = |n: usize| AlarmFinding {
            cleared_at: clears.then(|| at(from + n as i64)),
            ..raised(&format!("{prefix}{n}"), from + n as i64, 1)
        };
        (0..count).map(one).collect()
    };
    finds(r, &device, &many("active", LIVING_ALARMS_MAX - 10, 0, false)).await;
    finds(r, &device, &many("old", 10, 10_000, true)).await;
    finds(r, &device, &many("new", 12, 20_000, false)).await;
    let alarms = all(r).await;
    let count = |prefix: &str| alarms.iter().filter(|alarm| alarm.key.starts_with(prefix)).count();
    assert_eq!((count("active"), count("old"), count("new")), (LIVING_ALARMS_MAX - 10, 10, 10));
    let active = AlarmCounts { warning: LIVING_ALARMS_MAX as u64, ..AlarmCounts::default() };
    let summary = r.alarm_summary(&given::lists_all()).await.unwrap();
    assert_eq!(summary, AlarmSummary { active, unacknowledged: LIVING_ALARMS_MAX as u64 });
    // Only the end of an active alarm makes room.
    finds(r, &device, &[cleared("active0", 0, 1, 30_000), raised("last", 30_001, 1)]).await;
    assert!(all(r).await.iter().any(|alarm| alarm.key == "last"));
}

/// Checks that a device which raises and clears ever new keys keeps a bounded number of ended alarms.
pub async fn past_alarms_of_a_device_are_bounded(r: &Registry) {
    let device = fridge(r).await;
    for round in 0..4 {
        let one = |n: i64| AlarmFinding { cleared_at: Some(at(n)), ..raised(&n.to_string(), n, 1) };
        let batch: Vec<_> = (round * 1_000..(round + 1) * 1_000).map(one).collect();
        finds(r, &device, &batch).await;
    }
    let count = all(r).await.len();
    assert!(count <= LIVING_ALARMS_MAX + PAST_ALARMS_MAX, "{count}");
    let living = r.alarm_summary(&given::lists_all()).await.unwrap().unacknowledged;
    assert_eq!(living, LIVING_ALARMS_MAX as u64);
}

/// Checks that a notification names the alarm that it is about.
pub async fn a_notification_names_its_alarm(r: &Registry) {
    let device = fridge(r).await;
    let ana = given::user(r, device.organization, "ana").await;
    finds(r, &device, &[raised("", 1, 1)]).await;
    let alarm = r.alarm_of_notice(device.id, ("warm", "")).await.unwrap();
    let notice = Notice {
        id: isobar_model::ids::NotificationId(given::uuid()),
        kind: NotificationKind::Device,
        to: Audience::Organization { id: device.organization, minimum_role: Role::BasicUser },
        message: "too warm".to_owned(),
        device: Some(device.id),
        alarm,
        at: Timestamp::from_millis(given::START + 10),
    };
    assert!(r.notice_create(&may(notice.clone())).await.unwrap());
    let spreading = r.notice_spreading(notice.id).await.unwrap().unwrap();
    assert_eq!(spreading.notice, notice);
    let step = isobar_store::registry::SpreadStep { in_app: vec![ana.id], ..Default::default() };
    r.notice_spread(spreading, &step, at(11)).await.unwrap();
    let told = r.notification_list(&may(ana.id), page(1, 10).page, false).await.unwrap().items;
    assert_eq!((told[0].device, told[0].alarm), (Some(device.id), alarm));
    assert!(alarm.is_some());
}
