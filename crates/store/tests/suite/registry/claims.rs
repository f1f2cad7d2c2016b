//! Promises for work that one of several processes does.

use isobar_store::registry::{DeliveryKind, NewDelivery, Registry};

use super::given::{self, at};
use super::timers::{MINUTE, designs};

/// Callers that claim the same work at once, and pieces of it.
const CLAIMERS: usize = 8;
const CLAIMED: usize = 40;

fn mail(id: usize) -> NewDelivery {
    let destination = Some("tenant".to_owned());
    NewDelivery { id: format!("mail:{id}"), kind: DeliveryKind::Mail, body: "{}".to_owned(), destination }
}

/// Checks that each delivery is claimed by one of many at once, and by another when the claim has ended.
pub async fn delivery_is_claimed_by_one(r: &Registry) {
    let mails: Vec<NewDelivery> = (0..CLAIMED).map(mail).collect();
    let ids: Vec<&str> = mails.iter().map(|mail| &*mail.id).collect();
    r.deliveries_put(&mails, at(0)).await.unwrap();
    let claim = async |now: i64, until: i64| r.deliveries_claim(ids.iter().copied(), at(now), at(until)).await.unwrap();
    let claims = futures::future::join_all((0..CLAIMERS).map(|_| claim(1, 100))).await;
    let mut claimed: Vec<&str> = claims.iter().flatten().map(String::as_str).collect();
    claimed.sort_unstable();
    assert_eq!(claimed.len(), CLAIMED);
    claimed.dedup();
    assert_eq!(claimed.len(), CLAIMED);

    let due = async |now: i64| r.deliveries_to(DeliveryKind::Mail, "tenant", at(now), 100).await.unwrap().len();
    assert_eq!((due(99).await, due(100).await), (0, CLAIMED));
    r.deliveries_keep(ids[1..].iter().copied(), at(200)).await.unwrap();
    assert_eq!(claim(150, 300).await.into_iter().collect::<Vec<_>>(), ["mail:0"]);
    // The outcome of a try ends its claim.
    r.delivery_failed("mail:1", 1, at(160)).await.unwrap();
    r.delivery_replace("mail:2", "[]", at(170)).await.unwrap();
    r.delivery_done("mail:3").await.unwrap();
    assert_eq!((due(159).await, due(160).await, due(170).await), (0, 1, 2));
    assert_eq!(claim(500, 600).await.len(), CLAIMED - 1);
}

/// Checks that a timer is claimed by one of many at once, until its next time is set.
pub async fn timer_is_claimed_by_one(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let project = given::project(r, home, "p").await.id;
    designs(r, project, &[("tick", 1)], 0).await;
    for name in ["a", "b"] {
        r.device_create(&super::given::may(home), given::new_device(project, name), at(0)).await.unwrap();
    }
    let due = async |now: i64| r.timers_due(at(now), 100).await.unwrap();
    let numbers: Vec<u64> = due(MINUTE).await.iter().map(|timer| timer.number).collect();
    let claim = async |now: i64, until: i64| r.timers_claim(&numbers, at(now), at(until)).await.unwrap();
    assert_eq!(claim(MINUTE - 1, 2 * MINUTE).await.len(), 0);
    let claims = futures::future::join_all((0..CLAIMERS).map(|_| claim(MINUTE, 2 * MINUTE))).await;
    assert_eq!(claims.iter().map(std::collections::HashSet::len).sum::<usize>(), 2);
    assert_eq!((due(2 * MINUTE - 1).await.len(), due(2 * MINUTE).await.len()), (0, 2));
    r.timers_set(&[(numbers[0], at(MINUTE + 1))], &[]).await.unwrap();
    assert_eq!(claim(MINUTE + 1, 2 * MINUTE).await.into_iter().collect::<Vec<_>>(), [numbers[0]]);
}

/// Checks that a job is claimed once in its time, also by a clock that was set back.
pub async fn job_is_claimed_once_in_its_time(r: &Registry) {
    let claim = async |name: &'static str, second: i64| r.job_claim(name, at(second * 1_000), 3_600).await.unwrap();
    let claims = futures::future::join_all((0..CLAIMERS).map(|_| claim("a", 0))).await;
    assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1);
    assert!(!claim("a", 3_599).await && claim("b", 3_599).await);
    assert!(claim("a", 3_600).await && !claim("a", 3_600).await);
    assert!(!claim("a", 3_000).await, "the clock of another process is ten minutes behind");
    assert!(claim("a", 100).await, "the clock was set back");
}

/// Checks that failures count together until their period ends, also those that come at once or by a clock ahead.
pub async fn failures_count_until_their_period_ends(r: &Registry) {
    const PERIOD: i64 = 900;
    let subjects = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let add =
        async |names: &[&str], second: i64| r.failures_add(&subjects(names), at(second * 1_000), PERIOD).await.unwrap();
    let seen = async |name: &str, second: i64| {
        let found = r.failures_of(&subjects(&[name]), at(second * 1_000)).await.unwrap();
        found.iter().map(|seen| (seen.since.millis() - at(0).millis(), seen.count)).collect::<Vec<_>>()
    };
    let names = [["a", "b"], ["b", "a"]];
    futures::future::join_all((0..CLAIMERS).map(|turn| add(&names[turn % 2], 0))).await;
    let all = CLAIMERS as u64;
    assert_eq!((seen("a", 0).await, seen("b", 0).await, seen("c", 0).await), (vec![(0, all)], vec![(0, all)], vec![]));
    assert_eq!((add(&["a"], 899).await, add(&["a"], 900).await), (all + 1, 1));
    assert_eq!(seen("a", 900).await, [(900_000, 1)]);
    // A clock ahead is right again: the period begins now.
    assert_eq!(seen("a", 100).await, [(100_000, 1)]);
    assert_eq!((add(&["d"], 500).await, add(&["d"], 100).await), (1, 2));
    assert_eq!(seen("d", 600).await, [(100_000, 2)]);
    assert_eq!(r.failures_sweep(at(999_999), PERIOD).await.unwrap(), 1);
    assert_eq!(r.failures_sweep(at(1_000_000), PERIOD).await.unwrap(), 2);
}
