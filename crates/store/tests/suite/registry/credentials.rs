//! Promises for credentials: sessions, tokens, keys.

use isobar_model::ids::{ApiKeyId, SessionId, UserId};
use isobar_model::page::PageRequest;
use isobar_model::role::Role;
use isobar_model::session::Session;
use isobar_model::user::ApiKey;

use super::given::{self, at, digest, may};
use isobar_store::error::StoreError;
use isobar_store::registry::{KeyRecord, Registry};

/// Checks that a login finds a user by username or e-mail address, in any case.
pub async fn a_login_is_found_by_either_name(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let ana = given::user(r, home, "Ana").await.id;
    for name in ["ana", "ANA", "ana@EXAMPLE.org"] {
        let record = r.login_by_name(name).await.unwrap().unwrap();
        assert_eq!((record.user, record.password_hash, record.disabled), (ana, None, false));
    }
    for name in ["", "an", "ana%", "_na", "ana@example.org "] {
        assert!(r.login_by_name(name).await.unwrap().is_none(), "{name}");
    }
    r.password_set(&may(ana), "$argon2id$…", at(2)).await.unwrap();
    assert_eq!(r.login_by_name("ana").await.unwrap().unwrap().password_hash.as_deref(), Some("$argon2id$…"));
    let nobody = may(UserId(given::uuid()));
    assert!(matches!(r.password_set(&nobody, "hash", at(2)).await, Err(StoreError::Gone("user"))));
}

fn session(user: UserId, ends: i64) -> Session {
    Session { id: SessionId(given::uuid()), user, refresh: Some(digest()), created_at: at(0), expires_at: at(ends) }
}

/// Checks that a session ends alone, with the others of its user, by time, or with its user.
pub async fn sessions_live_until_they_end(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    let [first, second, third] = [session(ana, 100), session(ana, 200), session(ana, 300)];
    let other = session(bob, 50);
    for session in [&first, &second, &third, &other] {
        assert!(!r.session_open(session, 9).await.unwrap());
        assert_eq!(r.session(session.id).await.unwrap().as_ref(), Some(session));
        assert_eq!(r.sessions_by_refresh(&[session.refresh.unwrap()]).await.unwrap(), std::slice::from_ref(session));
    }
    r.session_refresh_end(first.id).await.unwrap();
    assert_eq!(r.sessions_by_refresh(&[first.refresh.unwrap()]).await.unwrap(), []);
    assert_eq!(r.session(first.id).await.unwrap(), Some(Session { refresh: None, ..first.clone() }));

    r.sessions_end(ana, Some(second.id)).await.unwrap();
    assert_eq!(r.session(first.id).await.unwrap(), None);
    assert_eq!(r.session(second.id).await.unwrap(), Some(second.clone()));
    r.sessions_sweep(at(50)).await.unwrap();
    assert_eq!(r.session(other.id).await.unwrap(), None);
    r.user_delete(&may(ana)).await.unwrap();
    assert_eq!(r.session(second.id).await.unwrap(), None);
    assert!(matches!(r.session_open(&third, 9).await, Err(StoreError::Gone("user"))));
    r.sessions_end(bob, None).await.unwrap();
}

/// Checks that a new session beyond the limit ends the oldest of its user, also for concurrent logins.
// Holds: c3.sessions
pub async fn sessions_beyond_the_bound_end_oldest_first(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    // The clock goes back; identifiers grow.
    let numbered = |user: UserId, number: u128| Session {
        id: SessionId(uuid::Uuid::from_u128((user.0.as_u128() & !0xffff) + number)),
        created_at: at(100 - number as i64),
        ..session(user, 900)
    };
    let all: Vec<_> = (1..=5).map(|number| numbered(ana, number)).collect();
    let others = numbered(bob, 0x1000);
    assert!(!r.session_open(&others, 3).await.unwrap());
    for (index, session) in all.iter().enumerate() {
        assert_eq!(r.session_open(session, 3).await.unwrap(), index >= 3, "{index}");
    }
    for (index, session) in all.iter().enumerate() {
        assert_eq!(r.session(session.id).await.unwrap().is_some(), index >= 2, "{index}");
    }
    let at_once: Vec<_> = (10..30).map(|number| numbered(ana, number)).collect();
    let begin = at_once.iter().map(|session| async { assert!(r.session_open(session, 3).await.unwrap()) });
    futures::future::join_all(begin).await;
    let mut open = 0;
    for session in &at_once {
        open += usize::from(r.session(session.id).await.unwrap().is_some());
    }
    assert_eq!(open, 3);
    assert!(r.session(others.id).await.unwrap().is_some());
}

/// Checks that a revocation is stored until the JWT would have expired.
pub async fn revoked_jwts_are_remembered_until_they_expire(r: &Registry) {
    r.jwt_revoke("b", at(20)).await.unwrap();
    r.jwt_revoke("a", at(10)).await.unwrap();
    r.jwt_revoke("a", at(10)).await.unwrap();
    assert_eq!(r.jwts_revoked(at(0)).await.unwrap(), ["a", "b"]);
    assert_eq!(r.jwts_revoked(at(10)).await.unwrap(), ["b"]);
    r.sessions_sweep(at(10)).await.unwrap();
    assert_eq!(r.jwts_revoked(at(0)).await.unwrap(), ["b"]);
}

/// Checks that all callers get the same key, whichever asks first.
pub async fn signing_key_is_permanent(r: &Registry) {
    let tasks: Vec<_> = (0..10_u8)
        .map(|number| {
            let r = r.clone();
            tokio::spawn(async move { r.signing_key([number; 32]).await.unwrap() })
        })
        .collect();
    let mut keys = Vec::new();
    for task in tasks {
        keys.push(task.await.unwrap());
    }
    keys.dedup();
    assert_eq!(keys.len(), 1);
    assert_eq!(r.signing_key([99; 32]).await.unwrap(), keys[0]);
}

/// Checks that a key is found by its digest, that only its own user lists or removes it, and that their number is
/// limited.
pub async fn api_keys_belong_to_their_user(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    let mut keys = Vec::new();
    for number in 0..3 {
        let id = ApiKeyId(given::uuid());
        let name = format!("key {number}");
        // The first has neither a role nor an end of its own.
        let (role, expires_at) = (Some(Role::Technician), Some(at(100 + number)));
        let (role, expires_at) = (role.filter(|_| number > 0), expires_at.filter(|_| number > 0));
        let key = ApiKey { id, user: ana, name, created_at: at(number), role, expires_at, last_used_at: None };
        let secret = digest();
        assert!(r.api_key_create(&may(ana), &key, &secret, 3).await.unwrap());
        let record = KeyRecord { id, user: ana, role, expires_at };
        assert_eq!(r.api_key_by_digest(&secret).await.unwrap(), Some(record));
        keys.push((key, secret));
    }
    assert_eq!(r.api_key_by_digest(&digest()).await.unwrap(), None);
    let (fourth, secret) = (ApiKey { id: ApiKeyId(given::uuid()), ..keys[0].0.clone() }, digest());
    assert!(!r.api_key_create(&may(ana), &fourth, &secret, 3).await.unwrap());
    assert_eq!(r.api_key_by_digest(&secret).await.unwrap(), None);
    let page = r.api_key_list(&may(ana), PageRequest::new(2, 2)).await.unwrap();
    assert_eq!((page.total, &*page.items), (3, &[keys[2].0.clone()][..]));
    assert_eq!(r.api_key_list(&may(bob), PageRequest::default()).await.unwrap().total, 0);

    r.api_keys_touch(&[(keys[0].0.id, at(9)), (keys[0].0.id, at(4))]).await.unwrap();
    r.api_keys_touch(&[(keys[0].0.id, at(6))]).await.unwrap();
    let page = r.api_key_list(&may(ana), PageRequest::default()).await.unwrap();
    assert_eq!(page.items[0].last_used_at, Some(at(9)));

    assert!(!r.api_key_delete(&may(bob), keys[0].0.id).await.unwrap());
    assert!(r.api_key_delete(&may(ana), keys[0].0.id).await.unwrap());
    assert!(!r.api_key_delete(&may(ana), keys[0].0.id).await.unwrap());
    assert_eq!(r.api_key_by_digest(&keys[0].1).await.unwrap(), None);
    r.user_delete(&may(ana)).await.unwrap();
    assert_eq!(r.api_key_by_digest(&keys[1].1).await.unwrap(), None);
    let late = r.api_key_create(&may(ana), &keys[0].0, &keys[0].1, 3).await;
    assert!(matches!(late, Err(StoreError::Gone("user"))));
}
