//! Notices and what users do with them.

use isobar_model::access::CanWrite;
use isobar_model::ids::{NotificationId, OrganizationId, UserId};
use isobar_model::notification::{Audience, Notice, Notification, NotificationKind};
use isobar_model::page::{PageRequest, TimeRange};
use isobar_model::role::Role;

use super::given::{self, at, json, may};
use isobar_store::registry::{
    DeliveryKind, LetterBounds, LetterKind, NewLetter, NotificationMark, Registry, SpreadStep, UserChange,
};

const ALL: PageRequest = PageRequest::new(1, 10_000);
const EVER: TimeRange = TimeRange { from: None, to: None };

fn notice(to: Audience, message: &str, millis: i64) -> Notice {
    Notice {
        id: NotificationId(given::uuid()),
        kind: if to == Audience::Everybody { NotificationKind::System } else { NotificationKind::Device },
        to,
        message: message.to_owned(),
        device: None,
        alarm: None,
        at: at(millis),
    }
}

/// Creates a notice and distributes it to its recipients, this many at a time.
async fn spread(r: &Registry, notice: Notice, at_once: u32) -> NotificationId {
    let id = notice.id;
    assert!(r.notice_create(&may(notice)).await.unwrap());
    let mut left = r.notice_spreading(id).await.unwrap();
    while let Some(part) = left {
        let recipients = r.notice_recipients(&part, at_once).await.unwrap();
        let ids: Vec<_> = recipients.iter().map(|recipient| recipient.id).collect();
        let last = ids.last().copied().filter(|_| ids.len() == at_once as usize);
        let in_app = if part.notice.to == Audience::Everybody { &[][..] } else { &ids };
        left = r.notice_spread(part, &step(in_app, last), at(0)).await.unwrap();
    }
    assert_eq!(r.notice_spreading(id).await.unwrap(), None);
    id
}

fn step(in_app: &[UserId], to: Option<UserId>) -> SpreadStep {
    SpreadStep { in_app: in_app.to_vec(), to, ..SpreadStep::default() }
}

async fn tell(r: &Registry, to: Audience, message: &str, millis: i64) -> NotificationId {
    spread(r, notice(to, message, millis), 100).await
}

async fn list(r: &Registry, user: UserId) -> Vec<Notification> {
    let page = r.notification_list(&own(user), ALL, false).await.unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items
}

/// Returns the messages of a user, newest first; those that were read are in brackets.
async fn messages(r: &Registry, user: UserId) -> Vec<String> {
    let all: Vec<_> = list(r, user).await;
    let unread = r.notification_list(&own(user), ALL, true).await.unwrap();
    let expected: Vec<_> = all.iter().filter(|notification| !notification.read).cloned().collect();
    assert_eq!((unread.total, unread.items), (expected.len() as u64, expected));
    let shown = |notification: Notification| {
        if notification.read { format!("({})", notification.message) } else { notification.message }
    };
    all.into_iter().map(shown).collect()
}

fn own(user: UserId) -> CanWrite<UserId> {
    may(user)
}

async fn user(r: &Registry, organization: OrganizationId, name: &str, role: Role, millis: i64) -> UserId {
    let mut new = given::new_user(name);
    new.role = role;
    r.user_create(&may(organization), new, at(millis)).await.unwrap().id
}

async fn one(r: &Registry) -> (OrganizationId, UserId) {
    let home = given::organization(r, None, "Home").await.id;
    (home, user(r, home, "ana", Role::BasicUser, 0).await)
}

/// Checks that a repeated identifier makes no second notification, and restores no deleted one.
pub async fn repeated_notice_changes_nothing(r: &Registry) {
    let (_, ana) = one(r).await;
    let first = notice(Audience::User(ana), "once", 1);
    spread(r, first.clone(), 10).await;
    let again = Notice { message: "twice".to_owned(), to: Audience::Everybody, ..first.clone() };
    assert!(!r.notice_create(&may(again)).await.unwrap());
    assert_eq!(messages(r, ana).await, ["once"]);
    let fetched = r.notification_fetch(&own(ana), first.id).await.unwrap().unwrap();
    let expected = Notification {
        id: first.id,
        kind: NotificationKind::Device,
        message: "once".to_owned(),
        device: None,
        alarm: None,
        read: false,
        created_at: at(1),
    };
    assert_eq!(fetched, expected);
    r.notifications_mark(&own(ana), EVER, NotificationMark::Delete).await.unwrap();
    assert!(!r.notice_create(&may(first.clone())).await.unwrap());
    assert_eq!(r.notice_spreading(first.id).await.unwrap(), None);
    assert!(messages(r, ana).await.is_empty());
}

/// Checks the recipients of a notice: one user, or the users of an organization with at least a role who existed then.
pub async fn notice_reaches_its_recipients(r: &Registry) {
    let (home, ana) = one(r).await;
    let below = given::organization(r, Some(home), "Below").await.id;
    let max = user(r, home, "max", Role::Manager, 0).await;
    let dev = user(r, home, "dev", Role::Developer, 0).await;
    let late = user(r, home, "late", Role::Developer, 9).await;
    let cleo = user(r, below, "cleo", Role::Developer, 0).await;
    tell(r, Audience::User(ana), "to ana", 1).await;
    tell(r, Audience::Organization { id: home, minimum_role: Role::BasicUser }, "to all", 2).await;
    tell(r, Audience::Organization { id: home, minimum_role: Role::Manager }, "to managers", 3).await;
    tell(r, Audience::User(UserId(given::uuid())), "to nobody", 4).await;
    assert_eq!(messages(r, ana).await, ["to all", "to ana"]);
    assert_eq!(messages(r, max).await, ["to managers", "to all"]);
    assert_eq!(messages(r, dev).await, ["to managers", "to all"]);
    assert!(messages(r, late).await.is_empty() && messages(r, cleo).await.is_empty());
    // A notice stays with its recipients when they move.
    let mut change = unchanged(below);
    change.preferences = Some(json(r#"{"notifications":{}}"#));
    given::user_update(r, &may(max), &change, at(4)).await.unwrap();
    assert_eq!(messages(r, max).await, ["to managers", "to all"]);
    let waits = notice(Audience::Organization { id: below, minimum_role: Role::BasicUser }, "to below", 5);
    r.notice_create(&may(waits.clone())).await.unwrap();
    let part = r.notice_spreading(waits.id).await.unwrap().unwrap();
    assert_eq!(part.notice, waits);
    let recipients = r.notice_recipients(&part, 10).await.unwrap();
    let mut found: Vec<_> = recipients.iter().map(|recipient| (recipient.id, &*recipient.email)).collect();
    found.sort_unstable();
    let mut expected = [(max, "max@example.org"), (cleo, "cleo@example.org")];
    expected.sort_unstable();
    assert_eq!(found, expected);
    let of_max = recipients.iter().find(|recipient| recipient.id == max).unwrap();
    assert_eq!((of_max.preferences.clone(), of_max.disabled), (change.preferences, false));
}

fn unchanged(organization: OrganizationId) -> UserChange {
    UserChange {
        role: Role::Manager,
        organization,
        tos_hash: None,
        first_name: "First".to_owned(),
        last_name: "Last".to_owned(),
        company: "Company".to_owned(),
        job_title: None,
        language: None,
        preferences: None,
        password: None,
        disabled: false,
        reason: None,
    }
}

/// Checks that a notice for everybody needs no row for each user: only users with preferences are read.
pub async fn notice_for_everybody_reaches_existing_users(r: &Registry) {
    let (home, ana) = one(r).await;
    let mut people = vec![ana];
    for number in 0..300 {
        people.push(user(r, home, &format!("user {number}"), Role::BasicUser, 1).await);
    }
    given::user_update(r, &may(people[7]), &UserChange { preferences: Some(json("{}")), ..unchanged(home) }, at(1))
        .await
        .unwrap();
    let hello = notice(Audience::Everybody, "hello", 1);
    // This user was created in the same millisecond, but after the notice.
    let late = user(r, home, "late", Role::BasicUser, 1).await;
    assert!(r.notice_create(&may(hello.clone())).await.unwrap());
    let part = r.notice_to_spread().await.unwrap().unwrap();
    let recipients = r.notice_recipients(&part, 1000).await.unwrap();
    assert_eq!(recipients.iter().map(|recipient| recipient.id).collect::<Vec<_>>(), [people[7]]);
    // All users see it at once, before it was distributed.
    for user in &people {
        assert_eq!(messages(r, *user).await, ["hello"]);
    }
    assert_eq!(r.notice_spread(part, &step(&[], None), at(0)).await.unwrap(), None);
    assert_eq!(r.notice_to_spread().await.unwrap(), None);
    assert!(messages(r, late).await.is_empty());
    assert_eq!(r.notification_fetch(&own(late), hello.id).await.unwrap(), None);
    assert!(!r.notification_update(&own(late), hello.id, true).await.unwrap());
    // Each user marks and deletes it separately.
    assert!(r.notification_update(&own(people[3]), hello.id, true).await.unwrap());
    r.notifications_mark(&own(people[4]), EVER, NotificationMark::Delete).await.unwrap();
    assert_eq!(messages(r, people[3]).await, ["(hello)"]);
    assert!(messages(r, people[4]).await.is_empty());
    assert_eq!(r.notification_fetch(&own(people[4]), hello.id).await.unwrap(), None);
    assert_eq!(messages(r, people[5]).await, ["hello"]);
}

/// Checks that a continued spread reaches the rest, and nobody twice.
pub async fn interrupted_spread_of_a_notice_continues(r: &Registry) {
    let (home, ana) = one(r).await;
    let mut people = vec![ana];
    for number in 0..9 {
        people.push(user(r, home, &format!("user {number}"), Role::BasicUser, 0).await);
    }
    let all = notice(Audience::Organization { id: home, minimum_role: Role::BasicUser }, "all", 1);
    r.notice_create(&may(all.clone())).await.unwrap();
    let part = r.notice_to_spread().await.unwrap().unwrap();
    let first: Vec<_> = r.notice_recipients(&part, 4).await.unwrap().into_iter().map(|found| found.id).collect();
    assert_eq!(first, people[..4]);
    r.notice_spread(part, &step(&first[1..], Some(first[3])), at(0)).await.unwrap().unwrap();
    r.user_delete(&may(people[9])).await.unwrap();
    // A new query finds the rest.
    let part = r.notice_to_spread().await.unwrap().unwrap();
    assert_eq!(part.notice, all);
    let rest: Vec<_> = r.notice_recipients(&part, 100).await.unwrap().into_iter().map(|found| found.id).collect();
    assert_eq!(rest, people[4..9]);
    // A user who is deleted at the last moment delays no other.
    r.user_delete(&may(people[8])).await.unwrap();
    assert_eq!(r.notice_spread(part, &step(&rest, None), at(0)).await.unwrap(), None);
    assert!(messages(r, people[0]).await.is_empty(), "its preferences were against it");
    for user in &people[1..8] {
        assert_eq!(messages(r, *user).await, ["all"]);
    }
}

/// Checks that of two workers at the same step one takes it.
pub async fn concurrent_spreads_of_a_notice_deliver_once(r: &Registry) {
    let (home, ana) = one(r).await;
    let bob = user(r, home, "bob", Role::BasicUser, 0).await;
    let id = notice(Audience::Organization { id: home, minimum_role: Role::BasicUser }, "all", 1);
    r.notice_create(&may(id.clone())).await.unwrap();
    let part = r.notice_spreading(id.id).await.unwrap().unwrap();
    let take = async |letter: &str| {
        let mut taken = step(&[ana], Some(ana));
        taken.letters.push(NewLetter {
            user: ana,
            id: letter.to_owned(),
            body: "{}".to_owned(),
            kind: LetterKind::Notice { instead: "{}".to_owned() },
            bounds: LetterBounds { account_hour: 60, tenant_hour: 60 },
        });
        r.notice_spread(part.clone(), &taken, at(0)).await.unwrap()
    };
    let (first, second) = tokio::join!(take("first"), take("second"));
    let left: Vec<_> = [first, second].into_iter().flatten().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(
        r.deliveries_to(DeliveryKind::Mail, &home.to_string(), at(1), 10).await.unwrap().len(),
        1,
        "what goes outside goes once too"
    );
    assert_eq!(r.notice_spread(left[0].clone(), &step(&[bob], None), at(0)).await.unwrap(), None);
    assert_eq!(r.notice_spread(part, &step(&[ana, bob], None), at(0)).await.unwrap(), None);
    assert_eq!((messages(r, ana).await, messages(r, bob).await), (vec!["all".to_owned()], vec!["all".to_owned()]));
}

/// Checks that both kinds are in one list, by time and then in the order of their creation, and that pages do not
/// overlap.
pub async fn notifications_are_listed_newest_first(r: &Registry) {
    let (home, ana) = one(r).await;
    let bob = user(r, home, "bob", Role::BasicUser, 0).await;
    tell(r, Audience::User(ana), "1", 10).await;
    tell(r, Audience::Everybody, "2", 20).await;
    tell(r, Audience::User(ana), "3", 20).await;
    tell(r, Audience::User(bob), "not hers", 25).await;
    tell(r, Audience::Everybody, "4", 20).await;
    tell(r, Audience::Organization { id: home, minimum_role: Role::BasicUser }, "late news", 5).await;
    tell(r, Audience::User(ana), "5", 30).await;
    let all = ["5", "4", "3", "2", "1", "late news"];
    assert_eq!(messages(r, ana).await, all);
    let mut paged = Vec::new();
    for page in 1..=4 {
        let page = r.notification_list(&own(ana), PageRequest::new(page, 2), false).await.unwrap();
        assert_eq!(page.total, 6);
        paged.extend(page.items.into_iter().map(|notification| notification.message));
    }
    assert_eq!(paged, all);
    let ids: Vec<_> = list(r, ana).await.into_iter().map(|notification| notification.id).collect();
    for id in ids {
        assert_eq!(r.notification_fetch(&own(ana), id).await.unwrap().unwrap().id, id);
    }
    let nobody = r.notification_list(&own(UserId(given::uuid())), ALL, false).await.unwrap();
    assert_eq!((nobody.total, nobody.items.len()), (0, 0));
}

/// Checks that a notification can be marked as read and unread repeatedly.
pub async fn a_notification_is_read_and_unread(r: &Registry) {
    let (_, ana) = one(r).await;
    let own_one = tell(r, Audience::User(ana), "own", 1).await;
    let common = tell(r, Audience::Everybody, "common", 2).await;
    for (id, read, expected) in [
        (own_one, true, ["common", "(own)"]),
        (common, true, ["(common)", "(own)"]),
        (common, true, ["(common)", "(own)"]),
        (own_one, false, ["(common)", "own"]),
        (common, false, ["common", "own"]),
    ] {
        assert!(r.notification_update(&own(ana), id, read).await.unwrap());
        assert_eq!(messages(r, ana).await, expected);
    }
    let nothing = NotificationId(given::uuid());
    assert!(!r.notification_update(&own(ana), nothing, true).await.unwrap());
}

/// Checks that the start of a range is inclusive and its end exclusive, and that other users' notifications stay as
/// they are.
pub async fn a_range_of_notifications_is_marked(r: &Registry) {
    let (home, ana) = one(r).await;
    let bob = user(r, home, "bob", Role::BasicUser, 0).await;
    for number in 1..=3 {
        tell(r, Audience::Organization { id: home, minimum_role: Role::BasicUser }, &number.to_string(), number * 10)
            .await;
        tell(r, Audience::Everybody, &format!("e{number}"), number * 10).await;
    }
    let range = |from, to| TimeRange { from: Some(at(from)), to: Some(at(to)) };
    let mark = async |range, mark| r.notifications_mark(&own(ana), range, mark).await.unwrap();
    mark(range(10, 20), NotificationMark::Read(true)).await;
    assert_eq!(messages(r, ana).await, ["e3", "3", "e2", "2", "(e1)", "(1)"]);
    mark(range(20, 20), NotificationMark::Read(true)).await;
    mark(range(30, 10), NotificationMark::Delete).await;
    assert_eq!(messages(r, ana).await, ["e3", "3", "e2", "2", "(e1)", "(1)"]);
    mark(TimeRange { from: None, to: Some(at(30)) }, NotificationMark::Read(true)).await;
    mark(range(10, 11), NotificationMark::Read(false)).await;
    assert_eq!(messages(r, ana).await, ["e3", "3", "(e2)", "(2)", "e1", "1"]);
    mark(range(20, 30), NotificationMark::Delete).await;
    assert_eq!(messages(r, ana).await, ["e3", "3", "e1", "1"]);
    // A deleted notification stays deleted, whatever marks follow.
    mark(EVER, NotificationMark::Read(true)).await;
    mark(range(0, 25), NotificationMark::Read(false)).await;
    assert_eq!(messages(r, ana).await, ["(e3)", "(3)", "e1", "1"]);
    assert_eq!(messages(r, bob).await, ["e3", "3", "e2", "2", "e1", "1"]);
}

/// Checks that a range with an end in the future covers existing notifications, and no later ones.
pub async fn notifications_after_a_mark_stay_unread(r: &Registry) {
    let (_, ana) = one(r).await;
    let future = TimeRange { from: None, to: Some(at(1_000_000)) };
    for (round, mark) in
        [NotificationMark::Delete, NotificationMark::Read(true), NotificationMark::Delete].into_iter().enumerate()
    {
        tell(r, Audience::User(ana), "own", 5).await;
        tell(r, Audience::Everybody, "common", 5).await;
        assert_eq!(messages(r, ana).await[..2], ["common", "own"], "round {round}");
        r.notifications_mark(&own(ana), future, mark).await.unwrap();
        let left = if mark == NotificationMark::Delete { &[][..] } else { &["(common)", "(own)"] };
        assert_eq!(messages(r, ana).await, left, "round {round}");
    }
}

/// Checks that a notification has its last mark, whether that was its own or one of all.
pub async fn mark_of_all_and_single_marks_combine(r: &Registry) {
    let (_, ana) = one(r).await;
    let first = tell(r, Audience::Everybody, "1", 1).await;
    tell(r, Audience::Everybody, "2", 2).await;
    let mark = async |mark| r.notifications_mark(&own(ana), EVER, mark).await.unwrap();
    let single = async |read| assert!(r.notification_update(&own(ana), first, read).await.unwrap());
    single(true).await;
    assert_eq!(messages(r, ana).await, ["2", "(1)"]);
    mark(NotificationMark::Read(true)).await;
    assert_eq!(messages(r, ana).await, ["(2)", "(1)"]);
    single(false).await;
    assert_eq!(messages(r, ana).await, ["(2)", "1"]);
    mark(NotificationMark::Read(true)).await;
    tell(r, Audience::Everybody, "3", 3).await;
    assert_eq!(messages(r, ana).await, ["3", "(2)", "(1)"]);
    mark(NotificationMark::Read(false)).await;
    assert_eq!(messages(r, ana).await, ["3", "2", "1"]);
    let one_of_them = TimeRange { from: Some(at(2)), to: Some(at(3)) };
    r.notifications_mark(&own(ana), one_of_them, NotificationMark::Delete).await.unwrap();
    mark(NotificationMark::Read(true)).await;
    assert_eq!(messages(r, ana).await, ["(3)", "(1)"]);
    mark(NotificationMark::Delete).await;
    mark(NotificationMark::Read(false)).await;
    assert!(messages(r, ana).await.is_empty());
    assert!(!r.notification_update(&own(ana), first, true).await.unwrap(), "it was deleted");
}

/// Checks that notifications do not prevent the deletion of their user, and that other users keep theirs.
pub async fn notifications_are_deleted_with_their_user(r: &Registry) {
    let (home, ana) = one(r).await;
    let bob = user(r, home, "bob", Role::BasicUser, 0).await;
    tell(r, Audience::Organization { id: home, minimum_role: Role::BasicUser }, "all", 1).await;
    let common = tell(r, Audience::Everybody, "common", 2).await;
    r.notification_update(&own(ana), common, true).await.unwrap();
    r.notifications_mark(&own(ana), EVER, NotificationMark::Read(true)).await.unwrap();
    r.user_delete(&may(ana)).await.unwrap();
    assert_eq!(messages(r, bob).await, ["common", "all"]);
    assert!(list(r, ana).await.is_empty());
}

/// Checks that old notices expire, and that beyond a number the oldest of a user's own are removed.
pub async fn old_notices_expire_and_a_user_keeps_a_bounded_number(r: &Registry) {
    let (home, ana) = one(r).await;
    let bob = user(r, home, "bob", Role::BasicUser, 0).await;
    for number in 1..=6 {
        tell(r, Audience::User(ana), &number.to_string(), number).await;
    }
    tell(r, Audience::User(bob), "his", 1).await;
    let common = tell(r, Audience::Everybody, "common", 1).await;
    tell(r, Audience::Everybody, "newest", 9).await;
    r.notification_update(&own(bob), common, true).await.unwrap();
    assert_eq!(r.notices_hoarded(6).await.unwrap(), []);
    assert_eq!(r.notices_hoarded(5).await.unwrap(), [ana]);
    assert_eq!(r.notices_trim(&own(ana), 3, 2).await.unwrap(), 2);
    assert_eq!(r.notices_trim(&own(ana), 3, 2).await.unwrap(), 1);
    assert_eq!(r.notices_trim(&own(ana), 3, 2).await.unwrap(), 0);
    assert_eq!(messages(r, ana).await, ["newest", "6", "5", "4", "common"]);
    assert_eq!(r.notices_sweep(at(5), 4).await.unwrap(), 4);
    assert_eq!(r.notices_sweep(at(5), 4).await.unwrap(), 2);
    assert_eq!(r.notices_sweep(at(5), 4).await.unwrap(), 0);
    assert_eq!(messages(r, ana).await, ["newest", "6", "5"]);
    assert_eq!(messages(r, bob).await, ["newest"]);
}
