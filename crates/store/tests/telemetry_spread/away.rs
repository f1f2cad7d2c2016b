//! Databases that are away, silent or gone, among several.

pub mod on_postgres {
    use super::super::*;
    use crate::support::link::{Link, LinkState};

    /// Stores a value each in both databases, then lets the way to the second be like this.
    async fn one_is_away(state: LinkState) {
        let (first, second) = two().await;
        let link = Link::to(&second).await;
        let list = [first.address.clone(), link.address.clone()];
        let store = open_list(&list, &[]).await.unwrap();
        let (here, away) = (given::device_in(0), given::device_in(1));
        let keys = [here.target().key, away.target().key];
        let shared = store.shared().unwrap();
        for device in [&here, &away] {
            let work = OutboxChange::Put { number: store.outbox_number(), work: "work".into() };
            given::run(&store, device, Commit { outbox: vec![work], ..given::storing(given::id(1), &[("log", "1")]) })
                .await;
        }
        link.set(state);
        // A commit that is under way has an answer, though nobody knows its outcome. By then the look for events hangs too.
        let mut turn = store.lock(&away).await.unwrap();
        let mut hangs = turn.commit(given::storing(given::id(2), &[("log", "2")])).unwrap().durable;
        drop(turn);
        assert!(within_patience("an answer to a commit", hangs.wait()).await.is_err());
        becomes("the second database is away", async || store.is_away(1)).await;
        assert!(!store.is_away(0) && store.healthy().await.is_ok());
        // The first goes on, and calls of the second end at once.
        given::store(&store, &here, 2, "log", "2").await;
        assert!(matches!(store.lock_now(&away), Err(StoreError::Unavailable(_))));
        assert!(store.last(&away.reading(), "log").await.is_err());
        let standings = shared.standings(&keys).await.unwrap();
        assert!(standings[0].is_some() && standings[1].is_none(), "{standings:?}");
        assert!(shared.standing(keys[1]).await.is_err() && shared.queue_ends(&keys).await.unwrap()[1].is_none());
        let entries = shared.outbox_of(keys[0]).await.unwrap();
        let done: Vec<(DeviceKey, u64)> =
            entries.iter().map(|entry| (keys[0], entry.number)).chain([(keys[1], 1)]).collect();
        assert_eq!(store.outbox_done(&done).await.unwrap(), [(keys[1], 1)]);
        assert!(shared.outbox_of(keys[0]).await.unwrap().is_empty());
        assert!(shared.left_work(9).await.is_ok());
        assert!(store.healthy().await.is_ok() && store.database_healthy(0).await.is_ok());
        assert!(store.database_healthy(1).await.is_err());
        assert!(store.retain(at(0), Duration::from_secs(1), 3_600).await.is_ok());
        link.set(LinkState::Open);
        becomes("the second database is back", async || !store.is_away(1)).await;
        // Its connections are renewed, and nothing is lost.
        settled("the second database serves", async || {
            let mut turn = store.lock(&away).await.ok()?;
            turn.commit(given::storing(given::id(3), &[("log", "3")])).ok()?.durable.wait().await.ok()
        })
        .await;
        let texts = given::texts(&store, &away, "log", ValueQuery::default()).await;
        assert_eq!((texts.0.first(), texts.0.last()), (Some(&"3".to_owned()), Some(&"1".to_owned())));
        assert_eq!(shared.outbox_of(keys[1]).await.unwrap().len(), 1);
        store.close().await.unwrap();
        first.remove().await;
        second.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn closed_connections_hurt_no_others() {
        one_is_away(LinkState::Closed).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silence_hurts_no_others() {
        one_is_away(LinkState::Silent).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commits_are_answered_while_the_look_for_events_hangs() {
        let (first, second) = two().await;
        let link = Link::to(&first).await;
        let list = [link.address.clone(), second.address.clone()];
        let store = open_list(&list, &[]).await.unwrap();
        // The first database is looked at all the time.
        let following = store.follow();
        let device = given::device_in(0);
        given::store(&store, &device, 1, "log", "1").await;
        link.set(LinkState::Silent);
        // At least one of these waits for the look.
        let answered = async {
            while let Ok(mut turn) = store.lock(&device).await {
                let committed = turn.commit(given::storing(given::id(2), &[("log", "2")]));
                drop(turn);
                assert!(committed.unwrap().durable.wait().await.is_err());
            }
        };
        within_patience("answers to all commits", answered).await;
        assert!(store.is_away(0));
        link.set(LinkState::Open);
        settled("the first database serves", async || {
            let mut turn = store.lock(&device).await.ok()?;
            turn.commit(given::storing(given::id(3), &[("log", "3")])).ok()?.durable.wait().await.ok()
        })
        .await;
        drop(following);
        store.close().await.unwrap();
        first.remove().await;
        second.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reads_that_hang_end_when_their_database_is_away() {
        let (first, second) = two().await;
        let link = Link::to(&second).await;
        let store = open_list(&[first.address.clone(), link.address.clone()], &[]).await.unwrap();
        let (here, away) = (given::device_in(0), given::device_in(1));
        given::store(&store, &here, 1, "log", "1").await;
        given::store(&store, &away, 1, "log", "1").await;
        link.set(LinkState::Silent);
        // More than there are slots of long reads.
        let (reading, query) = (away.reading(), ValueQuery::default());
        let hang = (0..30).map(|_| store.values_chunk(&reading, "log", &query, None, given::claim()));
        let ended = futures::future::join_all(hang).await;
        assert!(ended.iter().all(Result::is_err));
        assert_eq!(store.scans().taken_and_waiting(), (0, 0));
        let read = store.values_chunk(&here.reading(), "log", &query, None, given::claim()).await;
        assert_eq!(read.unwrap().unwrap().values.len(), 1);
        // What hangs by the old connections holds back nobody.
        link.set(LinkState::Lost);
        becomes("the second database is back", async || !store.is_away(1)).await;
        let reads = (0..30).map(|_| store.last(&reading, "log"));
        let read = within_patience("reads", futures::future::join_all(reads)).await;
        assert!(read.into_iter().all(|last| last.unwrap().is_some()));
        store.close().await.unwrap();
        first.remove().await;
        second.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connections_that_vanish_with_the_only_database_hold_back_nobody() {
        let database = OwnDatabase::new().await;
        let link = Link::to(&database).await;
        let store = open_list(std::slice::from_ref(&link.address), &[]).await.unwrap();
        let device = given::device_in(0);
        given::store(&store, &device, 1, "log", "1").await;
        // Connections for all kinds of calls are open, and nothing waits for them.
        let reading = device.reading();
        let last = || futures::future::join_all((0..30).map(|_| store.last(&reading, "log")));
        assert!(last().await.iter().all(Result::is_ok));
        store.outbox_done(&[(device.target().key, 1)]).await.unwrap();
        link.set(LinkState::Silent);
        becomes("the database is away", async || store.is_away(0)).await;
        assert!(last().await.iter().all(Result::is_err));
        assert!(store.healthy().await.unwrap_err().to_string().contains("it does not answer"));
        link.set(LinkState::Lost);
        becomes("the database is back", async || !store.is_away(0)).await;
        let written = given::store(&store, &device, 2, "log", "2");
        within_patience("a commit", written).await;
        assert!(within_patience("reads", last()).await.iter().all(Result::is_ok));
        within_patience("a change", store.outbox_done(&[(device.target().key, 1)])).await.unwrap();
        // And what is under way when they vanish.
        link.set(LinkState::Silent);
        let mut turn = store.lock(&device).await.unwrap();
        let mut hangs = turn.commit(given::storing(given::id(3), &[("log", "3")])).unwrap().durable;
        drop(turn);
        let (outcome, reads) = futures::join!(hangs.wait(), last());
        assert!(outcome.is_err() && reads.iter().all(Result::is_err));
        link.set(LinkState::Lost);
        becomes("the database is back", async || !store.is_away(0)).await;
        within_patience("a commit", given::store(&store, &device, 4, "log", "4")).await;
        store.close().await.unwrap();
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commits_do_not_wait_for_ever_on_a_connection_that_is_gone() {
        let database = OwnDatabase::new().await;
        let link = Link::to(&database).await;
        let store = open_list(std::slice::from_ref(&link.address), &[]).await.unwrap();
        let device = given::device_in(0);
        given::store(&store, &device, 1, "log", "1").await;
        // Commits wait for looks too, and these use connections that are lost.
        let following = store.follow();
        // New connections pass at once: the database is never away.
        link.set(LinkState::Lost);
        let mut turn = store.lock(&device).await.unwrap();
        let mut hangs = turn.commit(given::storing(given::id(2), &[("log", "2")])).unwrap().durable;
        drop(turn);
        // It is decided by another connection whether the first one has written it.
        within_patience("an outcome", hangs.wait()).await.unwrap();
        assert!(!store.is_away(0));
        within_patience("a commit", given::store(&store, &device, 3, "log", "3")).await;
        let after = open_list(std::slice::from_ref(&database.address), &[]).await.unwrap();
        let texts = given::texts(&after, &device, "log", ValueQuery::default()).await;
        assert_eq!((texts.0.len(), texts.1), (3, 3));
        drop(following);
        for store in [after, store] {
            store.close().await.unwrap();
        }
        database.remove().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silent_database_does_not_keep_a_process_from_closing() {
        let (first, second) = two().await;
        let link = Link::to(&second).await;
        let store = open_list(&[first.address.clone(), link.address.clone()], &[]).await.unwrap();
        let device = given::device_in(1);
        given::store(&store, &device, 1, "log", "1").await;
        link.set(LinkState::Silent);
        let mut turn = store.lock(&device).await.unwrap();
        let mut hangs = turn.commit(given::storing(given::id(2), &[("log", "2")])).unwrap().durable;
        drop(turn);
        within_patience("the end of the store", store.close()).await.unwrap();
        assert!(hangs.wait().await.is_err());
        link.set(LinkState::Closed);
        first.remove().await;
        second.remove().await;
    }
}
