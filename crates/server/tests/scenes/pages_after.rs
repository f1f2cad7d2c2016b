//! Pages that follow an item, by `after`.

use serde_json::{Value, json};

use crate::support::person::text;
use crate::support::{NOBODY, TestApp};

// Holds: c21.after
#[tokio::test]
async fn changes_do_not_shift_pages_by_after() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let mut made = Vec::new();
    for number in 0..6 {
        made.push(ana.creates_device(&format!("d{number}")).await);
    }
    let page = async |more: &str| ana.get(&format!("/v2/devices?sortBy=-createdAt&limit=2{more}")).await.ok();
    let names = |page: &Value| {
        page["data"].as_array().unwrap().iter().map(|item| text(item, "name").to_owned()).collect::<Vec<_>>()
    };
    let first = page("").await;
    assert_eq!((names(&first), text(&first["meta"], "after")), (vec!["d5".to_owned(), "d4".to_owned()], &*made[4].id));
    ana.creates_device("new").await;
    ana.delete(&made[5].url()).await.is(204);
    let second = page(&format!("&after={}", made[4].id)).await;
    assert_eq!(names(&second), ["d3", "d2"]);
    let meta = json!({
        "totalDocs": 6, "page": 1, "limit": 2, "hasPrevPage": true, "hasNextPage": true, "totalPages": 3,
        "after": made[2].id,
    });
    assert_eq!(second["meta"], meta);
    let last = page(&format!("&after={}", made[2].id)).await;
    assert_eq!((names(&last), &last["meta"]["after"]), (vec!["d1".to_owned(), "d0".to_owned()], &Value::Null));
    assert_eq!(last["meta"]["hasNextPage"], false);
    let past = page(&format!("&after={}", made[0].id)).await;
    assert_eq!((names(&past), &past["meta"]["after"]), (vec![], &Value::Null));
    // In another order pages have numbers alone.
    assert_eq!(ana.get("/v2/devices?limit=2").await.ok()["meta"].get("after"), None);
}

// Holds: c21.after
#[tokio::test]
async fn page_after_what_is_not_listed_is_refused() {
    let app = TestApp::start().await;
    let (ana, bob) = (app.developer("ana").await, app.developer("bob").await);
    let deleted = ana.creates_device("deleted").await;
    ana.delete(&deleted.url()).await.is(204);
    let foreign = [
        bob.creates_device("foreign").await.id.clone(),
        bob.id.clone(),
        bob.organization.clone(),
        bob.project().await.to_owned(),
    ];
    for list in ["devices", "users", "organizations", "projects", "alarms"] {
        let get = async |query: &str| ana.get(&format!("/v2/{list}?{query}")).await;
        let mut texts = Vec::new();
        for id in foreign.iter().map(String::as_str).chain([&*deleted.id, NOBODY]) {
            let answer = get(&format!("sortBy=createdAt&after={id}")).await;
            texts.push(answer.text.clone());
            assert_eq!(answer.faults(), ["query.after"], "{list} {id}");
        }
        texts.dedup();
        assert_eq!(texts.len(), 1, "they do not tell what exists elsewhere: {texts:?}");
        for query in [
            "sortBy=createdAt&after=x".to_owned(),
            "sortBy=createdAt&after=".to_owned(),
            "sortBy=createdAt&after=%00".to_owned(),
            format!("sortBy=createdAt&page=2&after={}", ana.id),
            format!("after={}", ana.id),
            format!("sortBy=updatedAt&after={}", ana.id),
            format!("sortBy=createdAt,updatedAt&after={}", ana.id),
        ] {
            assert_eq!(get(&query).await.faults(), ["query.after"], "{list} {query}");
        }
    }
    for other in ["notifications", "views"] {
        ana.get(&format!("/v2/{other}?after={NOBODY}")).await.ok();
    }
}
