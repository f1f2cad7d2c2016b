//! Users.

use isobar_model::ids::{OrganizationId, UserId};
use isobar_model::role::Role;
use isobar_model::user::User;

use super::given::{self, at, json, lists, lists_all, may, search, sees, sorted};
use isobar_store::error::StoreError;
use isobar_store::registry::{Registry, UserChange};

/// Checks that usernames and e-mail addresses share one space of names, without regard to case.
pub async fn user_name_is_unique(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    given::user(r, home, "Jörg").await;
    for (username, email, fields) in [
        ("JÖRG", "other@example.org", vec!["username"]),
        ("other", "JÖRG@EXAMPLE.ORG", vec!["email"]),
        ("jörg@example.org", "other@example.org", vec!["username"]),
        ("other", "jörg", vec!["email"]),
        ("jörg", "Jörg@example.org", vec!["username", "email"]),
    ] {
        let mut new = given::new_user("x");
        (new.username, new.email) = (username.to_owned(), email.to_owned());
        match r.user_create(&may(home), new, at(0)).await {
            Err(StoreError::Taken { fields: taken }) => assert_eq!(taken, fields, "{username} {email}"),
            other => panic!("{username} {email}: {other:?}"),
        }
    }
    assert_eq!(r.user_list(&lists_all(), &sorted(&[])).await.unwrap().total, 1);
    let mut same = given::new_user("me@example.org");
    same.email = "ME@example.org".to_owned();
    r.user_create(&may(home), same, at(0)).await.unwrap();
    given::user(r, home, "other").await;
}

/// Checks that of many concurrent requests for one name one succeeds.
pub async fn user_name_is_unique_among_concurrent_requests(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let (r, mut new) = (r.clone(), given::new_user(if number % 2 == 0 { "ana" } else { "ANA" }));
            new.email = format!("{number}@example.org");
            tokio::spawn(async move { r.user_create(&may(home), new, at(0)).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => {
                assert!(matches!(&error, StoreError::Taken { fields } if fields == &["username"]), "{error:?}")
            }
        }
    }
    assert_eq!(made, 1);
    assert_eq!(r.user_list(&lists_all(), &sorted(&[])).await.unwrap().total, 1);
}

/// Returns a change of a user to this role.
fn with_role(user: &User, role: Role, disabled: bool) -> UserChange {
    UserChange {
        role,
        organization: user.organization,
        tos_hash: None,
        first_name: user.first_name.clone(),
        last_name: user.last_name.clone(),
        company: user.company.clone(),
        job_title: None,
        language: None,
        preferences: None,
        disabled,
        reason: None,
        password: None,
    }
}

async fn system_administrator(r: &Registry, home: OrganizationId, name: &str) -> User {
    let mut new = given::new_user(name);
    new.role = Role::SystemAdmin;
    r.user_create(&may(home), new, at(0)).await.unwrap()
}

/// Checks that the last system administrator is neither demoted, nor disabled, nor deleted.
pub async fn last_system_administrator_stays(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (system_administrator(r, home, "ana").await, system_administrator(r, home, "bob").await);
    given::user_update(r, &may(bob.id), &with_role(&bob, Role::SystemAdmin, true), at(1)).await.unwrap();
    for (role, disabled) in [(Role::Developer, false), (Role::SystemAdmin, true), (Role::BasicUser, true)] {
        let refused = given::user_update(r, &may(ana.id), &with_role(&ana, role, disabled), at(2)).await;
        assert!(matches!(refused, Err(StoreError::LastAdministrator)), "{role:?} {disabled} {refused:?}");
    }
    assert!(matches!(r.user_delete(&may(ana.id)).await, Err(StoreError::LastAdministrator)));
    assert_eq!(r.user_fetch(&sees(ana.id)).await.unwrap(), Some(ana.clone()), "nothing was done");
    // A disabled administrator does not count, and with a second one the first may be deleted.
    r.user_delete(&may(bob.id)).await.unwrap();
    let cleo = system_administrator(r, home, "cleo").await;
    given::user_update(r, &may(ana.id), &with_role(&ana, Role::Developer, false), at(3)).await.unwrap();
    r.user_delete(&may(ana.id)).await.unwrap();
    assert!(matches!(r.user_delete(&may(cleo.id)).await, Err(StoreError::LastAdministrator)));
}

/// Checks concurrent removals: each sees the other administrator when it begins.
pub async fn one_of_two_removed_system_administrators_stays(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let mut stays = system_administrator(r, home, "ana").await;
    for round in 0..12 {
        let other = system_administrator(r, home, &format!("bob{round}")).await;
        let goes = |user: User, way: usize| {
            let r = r.clone();
            tokio::spawn(async move {
                let went = match way % 3 {
                    0 => r.user_delete(&may(user.id)).await,
                    1 => given::user_update(&r, &may(user.id), &with_role(&user, Role::Developer, false), at(1))
                        .await
                        .map(|_| ()),
                    _ => given::user_update(&r, &may(user.id), &with_role(&user, user.role, true), at(1))
                        .await
                        .map(|_| ()),
                };
                (user, went)
            })
        };
        let both = [goes(stays, round), goes(other, round / 3)];
        let mut left = Vec::new();
        for one in both {
            let (user, went) = one.await.unwrap();
            if let Err(error) = went {
                assert!(matches!(error, StoreError::LastAdministrator), "{error:?}");
                left.push(user);
            }
        }
        assert_eq!(left.len(), 1, "round {round}");
        stays = left.remove(0);
    }
}

/// Checks that a user is read as it was written.
pub async fn user_is_stored_unchanged(r: &Registry) {
    assert!(r.is_empty().await.unwrap());
    let home = given::organization(r, None, "Home").await;
    let mut new = given::new_user("ana");
    new.role = Role::Manager;
    new.tos_hash = Some("signed".to_owned());
    new.language = Some("pt".to_owned());
    let made = r.user_create(&may(home.id), new, at(3)).await.unwrap();
    assert_eq!((&*made.username, &*made.email, made.role), ("ana", "ana@example.org", Role::Manager));
    assert_eq!((made.organization, &made.lineage, &*made.organization_name), (home.id, &home.lineage, "Home"));
    assert_eq!((made.tos_hash.as_deref(), made.language.as_deref()), (Some("signed"), Some("pt")));
    assert_eq!((made.job_title.as_deref(), made.preferences.as_ref(), made.last_active), (None, None, None));
    assert_eq!((made.created_at, made.updated_at, made.disabled, made.verified), (at(3), at(3), false, false));
    assert_eq!(r.user_fetch(&sees(made.id)).await.unwrap(), Some(made.clone()));
    assert_eq!(r.user_placement(made.id).await.unwrap(), Some((home.lineage, Role::Manager)));
    assert!(!r.is_empty().await.unwrap());
    let nobody = UserId(given::uuid());
    assert_eq!(r.user_fetch(&sees(nobody)).await.unwrap(), None);
    assert_eq!(r.user_placement(nobody).await.unwrap(), None);
    assert_eq!(r.account(nobody).await.unwrap(), None);
    let gone = r.user_create(&may(OrganizationId(given::uuid())), given::new_user("bob"), at(0)).await;
    assert!(matches!(gone, Err(StoreError::Gone("organization"))));
}

/// Checks that a taken name leaves no organization behind.
pub async fn account_is_created_whole_or_not_at_all(r: &Registry) {
    let (home, mut ana) = (given::new_organization("Home"), given::new_user("ana"));
    ana.role = Role::Administrator;
    let made = r.account_found(&may(None), home.clone(), ana, at(1)).await.unwrap();
    assert_eq!((made.organization, &*made.organization_name), (home.id, "Home"));
    let second = given::new_organization("Second");
    let refused = r.account_found(&may(None), second.clone(), given::new_user("ana"), at(1)).await;
    assert!(matches!(refused, Err(StoreError::Taken { fields }) if fields == ["username", "email"]));
    assert_eq!(r.organization_lineage(second.id).await.unwrap(), None);
}

/// Checks that a change takes effect everywhere at once, and that a removed user leaves nothing.
pub async fn a_user_is_changed_and_removed(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let other = given::organization(r, Some(home.id), "Other").await;
    let ana = given::user(r, home.id, "ana").await;
    let change = UserChange {
        role: Role::Developer,
        organization: other.id,
        tos_hash: None,
        first_name: "Ana".to_owned(),
        last_name: "Lima".to_owned(),
        company: "Acme".to_owned(),
        job_title: Some("boss".to_owned()),
        language: Some("pt".to_owned()),
        preferences: Some(json(r#"{"notifications": {}}"#)),
        disabled: true,
        reason: Some("asked for".to_owned()),
        password: None,
    };
    let changed = given::user_update(r, &may(ana.id), &change, at(4)).await.unwrap();
    assert_eq!((&*changed.organization_name, changed.role, changed.disabled), ("Other", Role::Developer, true));
    assert_eq!((changed.preferences.clone(), changed.updated_at), (change.preferences.clone(), at(4)));
    let account = r.account(ana.id).await.unwrap().unwrap();
    assert_eq!((account.role, account.disabled, account.verified), (Role::Developer, true, false));
    assert_eq!(account.lineage, other.lineage);
    r.user_verify(&may(ana.id), at(5)).await.unwrap();
    assert!(r.account(ana.id).await.unwrap().unwrap().verified);
    let found = r.user_list(&lists(&other.lineage, Some(1)), &search("lima")).await.unwrap();
    assert_eq!(found.items.len(), 1);

    r.user_delete(&may(ana.id)).await.unwrap();
    assert_eq!(r.account(ana.id).await.unwrap(), None);
    assert!(r.login_by_name("ana").await.unwrap().is_none());
    assert!(matches!(r.user_delete(&may(ana.id)).await, Err(StoreError::Gone("user"))));
    assert!(matches!(given::user_update(r, &may(ana.id), &change, at(6)).await, Err(StoreError::Gone("user"))));
    given::user(r, home.id, "ana").await;
}

/// Checks that reports that are late, repeated or for no user do no harm.
pub async fn activity_of_a_user_moves_forwards_only(r: &Registry) {
    let home = given::organization(r, None, "Home").await.id;
    let (ana, bob) = (given::user(r, home, "ana").await.id, given::user(r, home, "bob").await.id);
    r.users_touch(&[]).await.unwrap();
    r.users_touch(&[(ana, at(9)), (bob, at(3)), (ana, at(5)), (UserId(given::uuid()), at(1))]).await.unwrap();
    r.users_touch(&[(ana, at(7)), (bob, at(4))]).await.unwrap();
    let active = |user| async move { r.user_fetch(&sees(user)).await.unwrap().unwrap().last_active };
    assert_eq!((active(ana).await, active(bob).await), (Some(at(9)), Some(at(4))));
}

/// Checks that users are found by any of their five fields, and sorted by any that the API names.
pub async fn users_are_listed_and_searched(r: &Registry) {
    let home = given::organization(r, None, "Home").await;
    let below = given::organization(r, Some(home.id), "Below").await;
    for (number, name) in ["cleo", "Bea", "ana"].into_iter().enumerate() {
        let mut new = given::new_user(name);
        new.role = Role::ALL[number];
        (new.first_name, new.company) = (format!("F{}", 3 - number), format!("{name}'s works"));
        let place = if number == 0 { below.id } else { home.id };
        r.user_create(&may(place), new, at(number as i64)).await.unwrap();
    }
    let names = |request| async move {
        let users = r.user_list(&lists_all(), &request).await.unwrap().items;
        users.into_iter().map(|user| user.username).collect::<Vec<_>>()
    };
    // By code point: capitals first.
    assert_eq!(names(sorted(&[])).await, ["Bea", "ana", "cleo"]);
    for (order, expected) in [
        ("-username", ["cleo", "ana", "Bea"]),
        ("firstName", ["ana", "Bea", "cleo"]),
        ("role", ["cleo", "Bea", "ana"]),
        ("-createdAt", ["ana", "Bea", "cleo"]),
        ("lastName", ["cleo", "Bea", "ana"]),
        ("lastActive", ["cleo", "Bea", "ana"]),
    ] {
        assert_eq!(names(sorted(&[order])).await, expected, "{order}");
    }
    assert_eq!(names(search("BEA@")).await, ["Bea"]);
    assert_eq!(names(search("'s WORKS")).await.len(), 3);
    assert_eq!(names(search("f2")).await, ["Bea"]);
    let own = r.user_list(&lists(&home.lineage, Some(1)), &sorted(&[])).await.unwrap();
    assert_eq!(own.total, 2);
}
