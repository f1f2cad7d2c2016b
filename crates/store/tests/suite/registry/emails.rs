//! Promises for e-mails and their links.

use isobar_model::ids::{NotificationId, OrganizationId, SessionId, UserId};
use isobar_model::notification::{Audience, Notice, NotificationKind};
use isobar_model::session::Session;
use isobar_model::user_input::CredentialEnds;

use super::given::{self, at, digest, may};
use isobar_store::error::StoreError;
use isobar_store::registry::{
    ADDRESSES_MAX, DeliveryKind, LetterBounds, LetterKind, NewDelivery, NewLetter, NewPassword, Purpose, Registry,
    SpreadStep,
};

fn delivery(id: &str, kind: DeliveryKind, body: &str) -> NewDelivery {
    NewDelivery { id: id.to_owned(), kind, body: body.to_owned(), destination: Some(String::new()) }
}

const BOUNDS: LetterBounds = LetterBounds { account_hour: 4, tenant_hour: 10 };

fn link(id: &str, user: UserId) -> NewLetter {
    NewLetter { user, id: id.to_owned(), body: "{}".to_owned(), kind: LetterKind::Link, bounds: BOUNDS }
}

/// Checks that a delivery is pending until it was made, and is returned again after a failure.
pub async fn delivery_is_pending_until_done(r: &Registry) {
    assert_eq!(r.deliveries_next(DeliveryKind::Mail).await.unwrap(), None);
    r.deliveries_put(&[], at(0)).await.unwrap();
    r.deliveries_put(&[delivery("b", DeliveryKind::Mail, "1"), delivery("a", DeliveryKind::Mail, "2")], at(0))
        .await
        .unwrap();
    r.deliveries_put(&[delivery("c", DeliveryKind::Call, "3")], at(0)).await.unwrap();
    // The same again changes nothing.
    r.deliveries_put(&[delivery("a", DeliveryKind::Mail, "other"), delivery("d", DeliveryKind::Mail, "4")], at(5))
        .await
        .unwrap();
    assert_eq!(r.deliveries_next(DeliveryKind::Mail).await.unwrap(), Some(at(0)));
    let due = async |now, limit| {
        let due = r.deliveries_to(DeliveryKind::Mail, "", at(now), limit).await.unwrap();
        due.into_iter().map(|due| (due.id, due.body, due.attempts, due.created_at)).collect::<Vec<_>>()
    };
    let (a, b) = (("a".to_owned(), "2".to_owned(), 0, at(0)), ("b".to_owned(), "1".to_owned(), 0, at(0)));
    assert_eq!(due(0, 10).await, [a.clone(), b.clone()]);
    assert_eq!(due(5, 2).await, [a, b]);
    r.delivery_failed("a", 3, at(9)).await.unwrap();
    r.delivery_done("b").await.unwrap();
    r.delivery_done("b").await.unwrap();
    r.delivery_failed("b", 1, at(9)).await.unwrap();
    assert_eq!(due(8, 10).await, [("d".to_owned(), "4".to_owned(), 0, at(5))]);
    let later = due(9, 10).await;
    assert_eq!(later[1], ("a".to_owned(), "2".to_owned(), 3, at(0)));
    assert_eq!((later.len(), r.deliveries_next(DeliveryKind::Call).await.unwrap()), (2, Some(at(0))));
}

/// Checks that a user and its welcome e-mail are created together or not at all.
pub async fn welcome_email_is_created_with_its_user(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let mut new = given::new_user("ana");
    new.welcome = Some(link("first", new.id));
    r.user_create(&may(home), new.clone(), at(0)).await.unwrap();
    new.id = UserId(given::uuid());
    new.welcome = Some(link("second", new.id));
    assert!(r.user_create(&may(home), new, at(0)).await.is_err());
    let due = r.deliveries_to(DeliveryKind::Link, &home.to_string(), at(0), 10).await.unwrap();
    assert_eq!(due.iter().map(|due| &*due.id).collect::<Vec<_>>(), ["first"]);
}

/// Checks that letters beyond the limits are left out for concurrent requests too, and that each account gets one
/// letter that says so. A new hour begins with the first letter after the end of the old one.
// Holds: c3.letters
pub async fn letters_are_bounded_an_hour(r: &Registry) {
    let (home, other) = (given::organization(r, None, "Home").await.id, given::organization(r, None, "Other").await.id);
    let below = given::organization(r, Some(home), "Below").await.id;
    let users = [(home, "ana"), (below, "bob"), (below, "cleo"), (other, "dan")];
    let mut people = Vec::new();
    for (organization, name) in users {
        people.push(given::user(r, organization, name).await.id);
    }
    let tell = async |round: usize, now: i64| {
        let told = Notice {
            id: NotificationId(given::uuid()),
            kind: NotificationKind::System,
            to: Audience::Everybody,
            message: "x".to_owned(),
            device: None,
            alarm: None,
            at: at(now),
        };
        let id = told.id;
        r.notice_create(&may(told)).await.unwrap();
        let part = r.notice_spreading(id).await.unwrap().unwrap();
        let letter = |user: &UserId| NewLetter {
            kind: LetterKind::Notice { instead: "\"no more\"".to_owned() },
            ..link(&format!("{round}-{user}"), *user)
        };
        // One that is gone is left out.
        let gone = UserId(given::uuid());
        let letters = people.iter().chain([&gone]).map(letter).collect();
        r.notice_spread(part, &SpreadStep { letters, ..SpreadStep::default() }, at(now)).await.unwrap();
    };
    let sent = async |tenant: OrganizationId, now: i64| {
        let sent = r.deliveries_to(DeliveryKind::Mail, &tenant.to_string(), at(now), 1_000).await.unwrap();
        let told = sent.iter().filter(|letter| letter.body.contains("no more")).count();
        (sent.len(), told)
    };
    let rounds: Vec<_> = (0..8).map(|round| tell(round, 5)).collect();
    futures::future::join_all(rounds).await;
    assert_eq!((sent(home, 5).await, sent(other, 5).await), ((10, 3), (4, 1)));
    tell(8, 3_600_004).await;
    assert_eq!((sent(home, 3_600_004).await, sent(other, 3_600_004).await), ((10, 3), (4, 1)));
    r.letter_hours_sweep(at(3_600_004)).await.unwrap();
    tell(9, 3_600_005).await;
    assert_eq!((sent(home, 3_600_005).await, sent(other, 3_600_005).await), ((13, 3), (5, 1)));
    // Links go out whatever was told before; those beyond a bound are due later, also where the address is another user's.
    let ask = async |user: UserId, number: usize| {
        let letter = link(&format!("{user}-{number}"), user);
        r.nonce_ask(&may(user), Purpose::Reset, &letter, at(3_600_006)).await.unwrap();
    };
    for number in 0..4 {
        for user in &people[..3] {
            ask(*user, number).await;
        }
        ask(people[3], number).await;
    }
    r.user_delete(&may(people[3])).await.unwrap();
    let again = given::user(r, other, "dan").await.id;
    ask(again, 0).await;
    let due = async |tenant: OrganizationId, now| {
        r.deliveries_to(DeliveryKind::Link, &tenant.to_string(), at(now), 100).await.unwrap().len()
    };
    assert_eq!((due(home, 3_600_006).await, due(home, 7_200_004).await, due(home, 7_200_005).await), (10, 10, 12));
    assert_eq!((due(other, 3_600_006).await, due(other, 7_200_005).await, due(other, 7_200_006).await), (4, 4, 5));
}

/// Checks that a nonce works once, for its purpose, until it expires, and that only the newest one does.
pub async fn nonce_works_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let ana = given::user(r, home, "ana").await.id;
    let [first, second, third] = [digest(), digest(), digest()];
    r.nonce_put(&may(ana), Purpose::Verify, &first, at(100)).await.unwrap();
    r.nonce_put(&may(ana), Purpose::Verify, &second, at(100)).await.unwrap();
    r.nonce_put(&may(ana), Purpose::Reset, &third, at(100)).await.unwrap();
    for (digest, now) in [(first, 0), (third, 0), (second, 100)] {
        assert_eq!(r.account_verify(&digest, at(now)).await.unwrap(), None);
    }
    assert!(!r.account(ana).await.unwrap().unwrap().verified);
    assert_eq!(r.account_verify(&second, at(99)).await.unwrap(), Some(ana));
    assert_eq!(r.account_verify(&second, at(99)).await.unwrap(), None);
    assert!(r.account(ana).await.unwrap().unwrap().verified);

    // Asking for another ends the one that is open.
    assert!(r.nonce_is_open(Purpose::Reset, &third, at(99)).await.unwrap());
    assert!(!r.nonce_is_open(Purpose::Reset, &third, at(100)).await.unwrap());
    r.nonce_ask(&may(ana), Purpose::Reset, &link("asked", ana), at(1)).await.unwrap();
    assert!(!r.nonce_is_open(Purpose::Reset, &third, at(1)).await.unwrap());
    assert_eq!(r.deliveries_to(DeliveryKind::Link, &home.to_string(), at(1), 10).await.unwrap().len(), 1);
    let nobody = may(UserId(given::uuid()));
    assert!(matches!(r.nonce_put(&nobody, Purpose::Reset, &third, at(9)).await, Err(StoreError::Gone("user"))));
    r.nonce_put(&may(ana), Purpose::Reset, &third, at(9)).await.unwrap();
    r.sessions_sweep(at(9)).await.unwrap();
    assert!(!r.nonce_is_open(Purpose::Reset, &third, at(1)).await.unwrap());
}

/// Checks that a reset sets the password, verifies the address, and ends the user's sessions, once.
pub async fn a_reset_ends_every_session(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    let mut sessions = Vec::new();
    for user in [ana, ana, bob] {
        let id = SessionId(given::uuid());
        let session = Session { id, user, refresh: Some(digest()), created_at: at(0), expires_at: at(900) };
        r.session_open(&session, 9).await.unwrap();
        sessions.push(id);
    }
    let nonce = digest();
    r.nonce_put(&may(ana), Purpose::Reset, &nonce, at(100)).await.unwrap();
    assert_eq!(r.password_reset(&digest(), "hash", CredentialEnds::default(), at(1)).await.unwrap(), None);
    let tries = (0..6).map(|_| {
        let r = r.clone();
        tokio::spawn(async move { r.password_reset(&nonce, "hash", CredentialEnds::default(), at(1)).await.unwrap() })
    });
    let mut done = 0;
    for attempt in tries.collect::<Vec<_>>() {
        done += usize::from(attempt.await.unwrap() == Some(ana));
    }
    assert_eq!(done, 1);
    let record = r.login_by_name("ana").await.unwrap().unwrap();
    assert_eq!((record.password_hash.as_deref(), record.verified), (Some("hash"), true));
    assert_eq!(r.session(sessions[0]).await.unwrap(), None);
    assert_eq!(r.session(sessions[1]).await.unwrap(), None);
    assert!(r.session(sessions[2]).await.unwrap().is_some());
}

/// Checks that only an address that follows others is new, and that the number of stored addresses is limited.
pub async fn a_new_sign_in_address_is_noticed_once(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    for (user, address, is_new) in [
        (ana, "10.0.0.1", false),
        (ana, "10.0.0.1", false),
        (ana, "::1", true),
        (ana, "::1", false),
        (bob, "::1", false),
    ] {
        assert_eq!(r.sign_in_note(user, address, at(0)).await.unwrap(), is_new, "{address}");
    }
    for number in 0..ADDRESSES_MAX {
        assert!(r.sign_in_note(ana, &format!("10.1.0.{number}"), at(1)).await.unwrap());
    }
    assert!(r.sign_in_note(ana, "::1", at(2)).await.unwrap(), "the oldest was forgotten");
    assert!(!r.sign_in_note(ana, "10.1.0.1", at(2)).await.unwrap());
    let nobody = r.sign_in_note(UserId(given::uuid()), "::1", at(2)).await;
    assert!(matches!(nobody, Err(StoreError::Gone("user"))));
}

/// Checks that a new password keeps the current session only, and invalidates links for another one.
pub async fn a_new_password_ends_the_other_sessions(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let ana = given::user(r, home, "ana").await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let id = SessionId(given::uuid());
        let session = Session { id, user: ana.id, refresh: Some(digest()), created_at: at(0), expires_at: at(900) };
        r.session_open(&session, 9).await.unwrap();
        sessions.push(id);
    }
    let nonce = digest();
    r.nonce_put(&may(ana.id), Purpose::Reset, &nonce, at(100)).await.unwrap();
    let mut change = given::unchanged_user(&ana);
    given::user_update(r, &may(ana.id), &change, at(1)).await.unwrap();
    assert!(r.session(sessions[0]).await.unwrap().is_some());
    change.password =
        Some(NewPassword { hash: "hash".to_owned(), keeps: Some(sessions[1]), ends: CredentialEnds::default() });
    given::user_update(r, &may(ana.id), &change, at(1)).await.unwrap();
    assert_eq!(r.login_by_name("ana").await.unwrap().unwrap().password_hash.as_deref(), Some("hash"));
    assert_eq!(r.session(sessions[0]).await.unwrap(), None);
    assert!(r.session(sessions[1]).await.unwrap().is_some());
    assert!(!r.nonce_is_open(Purpose::Reset, &nonce, at(1)).await.unwrap());
    r.password_set(&may(ana.id), "other", at(2)).await.unwrap();
    assert_eq!(r.session(sessions[1]).await.unwrap(), None);
}
