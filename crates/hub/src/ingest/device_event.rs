//! The main road: a device event arrives, its project's design runs, everything it causes is committed at once.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use isobar_design::{DeviceView, EventView, LONG_RUN_UNITS, SHORT_RUN_BYTES_MAX, Trigger};
use isobar_model::access::{Action, Caller, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use isobar_model::json::{Json, RawJson};
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Commit, Durable, Locked, Memory, TURNS_MAX, Turn};

use super::accepted::Accepted;
use super::design_runs::RunMemory;
use super::effects::{new_cloud_event, queue_up};
use super::event_input::{accepted_name, check_idempotency_key, element_name};
use super::incoming::{Incoming, RunSignal, remembered, tell};
use super::revisions::LinePlace;
use super::run_commit::{RunCommit, TurnFailure};
use super::{Ingest, RUNS_MAX};
use crate::cache::entries::DeviceEntry;
use crate::designs::{Admission, RunPlace};
use crate::identity::authentication::Principal;

/// An event that came by the webhook, as one of an element.
pub(crate) struct IntegratedEvent<'a> {
    pub element: &'a Arc<str>,
    pub payload: &'a RawJson,
    pub idempotency_key: Option<&'a str>,
    /// The reason for its refusal: history stores it with this, and the design does not run.
    pub refused: Option<&'a str>,
    /// Told when it has run.
    pub ran: RunSignal,
}

/// The outcome of a run, or `None`, without a change, if the entry is outdated.
pub(super) type EventOutcome = Result<Option<Accepted>>;

impl Ingest {
    /// Accepts a device event: its design has run when this returns; [`Accepted::durable`] waits until it is durable
    /// and in history.
    pub(crate) async fn event_accept(
        self: &Arc<Self>,
        principal: &Principal,
        device: Option<&str>,
        element: Option<&str>,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<Accepted> {
        let mut faults = Faults::new();
        let target = self.event_device(principal, device, &mut faults).await?;
        let element = element_name(element, &mut faults);
        check_idempotency_key(idempotency_key, &mut faults);
        let read = self.env.bodies().payload(principal.tenant(), &body, &mut faults).await?;
        let (Some((payload, tree)), Some(element)) = (read, element) else {
            return Err(faults.into_error());
        };
        let Some((permit, entry)) = target else { return Err(faults.into_error()) };
        let now = self.env.now();
        let name = accepted_name(&*self.caches.plan_of_device(&entry).await?, element, &mut faults);
        faults.end()?;
        let element = name.unwrap_or_else(|| Arc::from(element));
        let idempotency_key = idempotency_key.map(Cow::Borrowed);
        let event = Incoming { element, payload, idempotency_key, now, refused: None, ran: None };
        let mut place = LinePlace::default();
        if let Some(accepted) = self.run_event(&permit, &entry, &event, tree, &mut place).await? {
            return Ok(accepted);
        }
        Box::pin(self.run_event_by_newer(&permit, entry.device.id, &event, place)).await
    }

    /// Runs an event by the newest entry of its device, which or whose design has changed meanwhile. If others wait for it, it
    /// is durable when this returns.
    pub(super) async fn run_event_by_newer(
        self: &Arc<Self>,
        permit: &CanWrite<DeviceRef>,
        device: DeviceId,
        event: &Incoming<'_>,
        mut place: LinePlace,
    ) -> Result<Accepted> {
        for _ in 1..RUNS_MAX {
            let newer = self.caches.device_entry(device).await?;
            let entry = newer.ok_or_else(|| Error::invalid("query.deviceId", "no such device"))?;
            let mut faults = Faults::new();
            accepted_name(&*self.caches.plan_of_device(&entry).await?, &event.element, &mut faults);
            faults.end()?;
            if let Some(accepted) = self.run_event(permit, &entry, event, None, &mut place).await? {
                return accepted.in_line(place).await;
            }
        }
        Err(Error::Busy)
    }

    /// Accepts an event that came by the webhook, or keeps it as refused; it is durable when this returns.
    pub(crate) async fn event_integrated(
        self: &Arc<Self>,
        caller: &Caller,
        device: DeviceId,
        event: &IntegratedEvent<'_>,
    ) -> Result<EventId> {
        let IntegratedEvent { element, payload, idempotency_key, refused, ran } = event;
        let event = Incoming {
            element: Arc::clone(element),
            payload: (*payload).clone(),
            idempotency_key: idempotency_key.map(Cow::Borrowed),
            now: self.env.now(),
            refused: refused.map(Cow::Borrowed),
            ran: Some(Arc::clone(ran)),
        };
        let mut place = LinePlace::default();
        for _ in 0..RUNS_MAX {
            let (permit, entry) = self.identity.user_device_write(caller, device, Action::WebhookReceive).await?;
            if event.refused.is_some() {
                match self.run_event_at(None, &permit, &entry, (&event, Some(Json::Null)), &mut place).await? {
                    Some(accepted) => return accepted.durable().await,
                    None => continue,
                }
            }
            if !self.caches.plan_of_device(&entry).await?.accepts(&event.element) {
                return Err(Error::invalid("body", "the project's design has changed meanwhile"));
            }
            if let Some(accepted) = self.run_event(&permit, &entry, &event, None, &mut place).await? {
                return accepted.durable().await;
            }
        }
        Err(Error::Busy)
    }

    /// Runs an event: a short run here, a long one in the pool, when it has a place there. The payload's tree may be there
    /// already.
    pub(super) async fn run_event(
        self: &Arc<Self>,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
        tree: Option<Json<'_>>,
        in_line: &mut LinePlace,
    ) -> EventOutcome {
        let bytes = event.payload.bytes().len();
        if !entry.is_long_run(bytes) {
            return self.run_event_at(None, permit, entry, (event, tree), in_line).await;
        }
        // A tree takes many times what its text does: it is made again in the pool.
        drop(tree);
        Box::pin(self.run_long_event(permit, entry, event, in_line)).await
    }

    async fn run_long_event(
        self: &Arc<Self>,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
        in_line: &mut LinePlace,
    ) -> EventOutcome {
        self.env.telemetry().must_reach(entry.device.key)?;
        let held = entry.held_by_run(event.payload.bytes().len());
        let place = self.designs.place(entry.project_runs(), Admission::New, Some(held)).await?;
        let mut outcome = self.run_event_at(Some(&place), permit, entry, (event, None), in_line).await;
        if let Ok(Some(accepted)) = &mut outcome
            && accepted.leaves_much()
        {
            // The tenant's next long run waits for what this one writes, as all others do.
            accepted.written().await;
        }
        outcome
    }

    /// Locks the device, runs its design on the event and commits all that it causes; what is left is to wait until that is
    /// durable, and then to publish it. With a place the run goes to the pool, together with the device's turn.
    async fn run_event_at(
        self: &Arc<Self>,
        place: Option<&RunPlace>,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        (event, mut tree): (&Incoming<'_>, Option<Json<'_>>),
        in_line: &mut LinePlace,
    ) -> EventOutcome {
        let store = self.env.telemetry();
        for _ in 0..TURNS_MAX {
            let turn = match store.turn_unless_repeated(permit, event.idempotency_key.as_deref(), event.now).await? {
                Locked::Turn(turn) => turn,
                Locked::Repeated(first) => {
                    self.settle_repeated(permit).await?;
                    self.activity.device(entry, event.now);
                    return Ok(Some(Accepted::before(first)));
                }
            };
            let mut revision = turn.memory().revision();
            if in_line.is_taken() {
                revision = Box::pin(self.revision_of_run(revision, in_line)).await?;
            }
            let turn = (turn, revision);
            let accepted = match place {
                None => self.run_event_in(turn, entry, event, tree.get_or_insert_with(|| event.payload.tree())),
                Some(place) => {
                    let (ingest, entry, event) = (Arc::clone(self), Arc::clone(entry), event.to_owned());
                    let run = move || ingest.run_event_in(turn, &entry, &event, &event.payload.tree());
                    self.designs.in_pool(place, run).await?
                }
            };
            match accepted {
                Ok(mut accepted) => match accepted.settled().await {
                    Err(StoreError::Conflict) => {}
                    // Now: the next event of a batch must not run behind one that failed.
                    Err(error) => return Err(error.into()),
                    Ok(()) => {
                        in_line.committed();
                        event.ran.as_ref().inspect(|ran| tell(ran));
                        return Ok(Some(accepted));
                    }
                },
                Err(TurnFailure::Outdated) => {
                    return Box::pin(self.settle_outdated(permit, in_line)).await.map(|()| None);
                }
                Err(TurnFailure::Failed(error)) => return Err(error),
                Err(TurnFailure::Conflict) => {}
            }
        }
        Err(Error::Busy)
    }

    /// Runs the design of a locked device on the event, and commits all that it causes.
    fn run_event_in(
        self: &Arc<Self>,
        (turn, revision): (Turn, u64),
        entry: &Arc<DeviceEntry>,
        event: &Incoming<'_>,
        tree: &Json<'_>,
    ) -> std::result::Result<Accepted, TurnFailure> {
        let begun = RunCommit::of_event((&self.env, &self.caches), (entry, revision), event.now);
        let Some((mut run, view)) = begun else { return Err(self.outdated(turn, entry)) };
        // Identifiers grow from run to run, and expressions see what the run before has left.
        self.env.must_have_clock()?;
        self.env.ids_go_on_behind(turn.memory().newest());
        let id = self.env.new_id();
        match &event.refused {
            Some(why) => run.add_refused(id, event, why),
            None => self.run_design_on(id, event, tree, (&view, turn.memory()), &mut run),
        }
        let pending = self.committer.commit(run, turn)?;
        if pending.bytes > SHORT_RUN_BYTES_MAX {
            entry.plan.note_run(true);
        }
        Ok(Accepted::now(id, self, entry, event.now, pending))
    }

    /// Runs the design on an event, and adds the event and its effects.
    fn run_design_on(
        &self,
        id: EventId,
        event: &Incoming<'_>,
        tree: &Json<'_>,
        (view, memory): (&Arc<DeviceView>, &dyn Memory),
        run: &mut RunCommit<'_>,
    ) {
        let (element, received_at, now) = (&*event.element, id.minted_at(), self.env.now());
        let seen = EventView { id, element, received_at, now, payload: &event.payload, tree };
        let before = RunMemory { memory, left: None };
        let outcome = self.designs.run(&run.plan, Trigger::DeviceEvent { element }, &seen, view, &before);
        run.entry.plan.note_run(outcome.units > LONG_RUN_UNITS);
        run.add_event(id, event);
        run.carry_out(id, outcome.effects);
        run.add_errors(outcome.errors);
    }

    /// Queues a cloud event that somebody sends through the API; it is durable when this returns. None: the entry is
    /// outdated, and nothing happened.
    pub(crate) async fn queue_cloud_event(
        &self,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        (element, payload, idempotency_key): (&str, RawJson, Option<&str>),
        place: &mut LinePlace,
    ) -> Result<Option<EventId>> {
        let (store, now) = (self.env.telemetry(), self.env.now());
        for _ in 0..TURNS_MAX {
            let turn = match store.turn_unless_repeated(permit, idempotency_key, now).await? {
                Locked::Repeated(first) => return Ok(Some(first)),
                Locked::Turn(turn) => turn,
            };
            // The device is locked: what comes after this and before the device is forgotten goes with it.
            if !entry.is_current() || !entry.is_at(self.revision_of_run(turn.memory().revision(), place).await?) {
                self.outdated(turn, entry);
                return self.settle_outdated(permit, place).await.map(|()| None);
            }
            let cloud_event = (Arc::from(element), payload.clone());
            match self.queue_in(turn, entry, cloud_event, idempotency_key.map(|key| (key, now))) {
                Err(StoreError::Conflict) => {}
                queued => {
                    let (id, mut durable) = queued?;
                    match durable.wait().await {
                        Err(StoreError::Conflict) => continue,
                        outcome => outcome?,
                    }
                    self.committer.publish(entry, true);
                    return Ok(Some(id));
                }
            }
        }
        Err(Error::Busy)
    }

    /// Commits a cloud event of a locked device.
    fn queue_in(
        &self,
        mut turn: Turn,
        entry: &Arc<DeviceEntry>,
        (element, payload): (Arc<str>, RawJson),
        key: Option<(&str, Timestamp)>,
    ) -> std::result::Result<(EventId, Durable), StoreError> {
        self.env.must_have_clock()?;
        self.env.ids_go_on_behind(turn.memory().newest());
        let mut commit = Commit::default();
        let cloud_event = new_cloud_event(&self.env, element, payload, None);
        let id = cloud_event.id;
        queue_up(cloud_event, &mut commit);
        commit.idempotency = key.map(|(key, now)| remembered(key, id, now));
        self.committer.add_followed(entry, &mut commit);
        Ok((id, turn.commit(commit)?.durable))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};

    use isobar_model::device::Device;
    use isobar_quota::{SharedAmount, limits};

    use super::*;
    use crate::cache::plan_entry::RUNS_ASIDE;
    use crate::designs::HeldByRun;
    use crate::stage::Stage;

    /// A design whose code is given nothing of the event.
    const CODED: &str = r#"{
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "bytes", "ability": "evaluate"}]}},
        "bytes": {"type": "transform", "properties": {"expression": "{'bytes': [1]}"},
                  "triggers": {"result": [{"element": "decode", "ability": "evaluate"}]}},
        "decode": {"type": "function", "properties": {"code": "function decodeUplink(input) { return {data: 1}; }"}}
    }"#;
    const KIB: usize = 1 << 10;

    /// The device posts so many bytes.
    async fn posts(stage: &Stage, device: &Device, bytes: usize) -> Result<EventId> {
        let caller = Principal::User(Arc::clone(&stage.admin));
        let (id, body) = (device.id.to_string(), format!(r#""{}""#, "x".repeat(bytes)));
        stage.hub.0.ingest.event_accept(&caller, Some(&id), Some("reading"), body.into(), None).await?.durable().await
    }

    /// A design whose runs are short or long as the event says, which nobody can tell beforehand.
    fn fickle() -> String {
        let many = format!("[{}]", vec!["1"; 200].join(","));
        let sum = format!("payload.x == 1 ? {many}.all(a, {many}.all(b, b != payload.y)) : false");
        format!(
            r#"{{
                "reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": [{{"element": "sum", "ability": "evaluate"}}]}}}},
                "sum": {{"type": "transform", "properties": {{"expression": "{sum}"}},
                        "triggers": {{"result": [{{"element": "out", "ability": "store"}}]}}}},
                "out": {{"type": "storage"}}
            }}"#
        )
    }

    /// Checks that the event waits for a place, and that another tenant's events do not wait for it.
    async fn waits_for_a_place(stage: &Stage, other: &Device, long: Pin<&mut impl Future<Output = ()>>) {
        let mut long = long;
        for _ in 0..10 {
            assert!(futures::poll!(&mut long).is_pending());
            stage.posts(other, r#"{"x":0}"#).await;
        }
    }

    #[tokio::test]
    async fn runs_after_an_unforeseen_long_one_go_to_the_pool() {
        const LONG: &str = r#"{"x":1,"y":2}"#;
        const SHORT: &str = r#"{"x":0}"#;
        let stage = Stage::set().await;
        let (device, other) = (stage.device(&fickle()).await, stage.device_of_another_tenant(&fickle()).await);
        let sibling = stage.another(&format!(r#"{{"name":"d","projectUuid":"{}"}}"#, device.project)).await;
        let (entry, sibling) = (stage.entry(&device).await, stage.entry(&sibling).await);
        assert!(!entry.is_long_run(LONG.len()), "nothing foretells that it will be long");
        stage.posts(&device, LONG).await;
        assert!(entry.is_long_run(SHORT.len()) && sibling.is_long_run(SHORT.len()));
        let places = stage.hub.0.designs.all_places(entry.project_runs());
        let mut next = pin!(stage.posts(&device, LONG));
        waits_for_a_place(&stage, &other, next.as_mut()).await;
        drop(places);
        next.await;
        for _ in 0..5 {
            stage.posts(&device, SHORT).await;
            stage.posts(&device, LONG).await;
        }
        let permit = isobar_model::access::system(entry.device, "a test looks at what is stored").reading();
        let series = stage.hub.0.env.telemetry().series(&permit).await.unwrap();
        assert_eq!(series.iter().map(|series| series.count).collect::<Vec<_>>(), [12]);
        for _ in 0..RUNS_ASIDE {
            assert!(entry.is_long_run(SHORT.len()));
            stage.posts(&device, SHORT).await;
        }
        assert!(!entry.is_long_run(SHORT.len()) && !sibling.is_long_run(SHORT.len()));
    }

    #[tokio::test]
    async fn runs_after_one_that_writes_much_go_to_the_pool() {
        let large = "x".repeat(100 * KIB);
        let design = format!(
            r#"{{
                "reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": [{{"element": "say", "ability": "evaluate"}}]}}}},
                "say": {{"type": "transform", "properties": {{"expression": "payload == 1 ? settings.text : 'short'"}},
                        "triggers": {{"result": [{{"element": "out", "ability": "store"}}]}}}},
                "text": {{"type": "deviceSetting", "properties": {{"inputType": "text", "defaultValue": "{large}"}}}},
                "out": {{"type": "storage"}}
            }}"#
        );
        let stage = Stage::set().await;
        let (device, other) = (stage.device(&design).await, stage.device_of_another_tenant(&design).await);
        let entry = stage.entry(&device).await;
        stage.posts(&device, "0").await;
        assert!(!entry.is_long_run(1));
        stage.posts(&device, "1").await;
        assert!(stage.stored(&device, "out").await.is_some_and(|last| last.contains(&large)));
        assert!(entry.is_long_run(1));
        let places = stage.hub.0.designs.all_places(entry.project_runs());
        let mut next = pin!(stage.posts(&device, "0"));
        waits_for_a_place(&stage, &other, next.as_mut()).await;
        drop(places);
        next.await;
        assert_eq!(stage.stored(&device, "out").await.as_deref(), Some("\"short\""));
    }

    #[tokio::test]
    async fn an_event_that_waits_for_code_is_charged_what_it_holds() {
        let stage = Stage::set().await;
        let (device, full) = (stage.device(CODED).await, stage.device(CODED).await);
        let with_meta =
            format!(r#"{{"name":"d","projectUuid":"{}","meta":{{"a":"{}"}}}}"#, device.project, "x".repeat(60 * KIB));
        let (with_meta, other) = (stage.another(&with_meta).await, stage.device_of_another_tenant(CODED).await);
        // Another project of the tenant leaves it little of the memory.
        let bytes = SharedAmount::of(limits::LONG_RUN_BYTES.of_all).of_one() - 64 * KIB;
        let held = HeldByRun { tenant: stage.admin.lineage.top(), bytes };
        let project = stage.entry(&full).await.project_runs();
        let place = stage.hub.0.designs.place(project, Admission::New, Some(held)).await.unwrap();
        posts(&stage, &device, 10 * KIB).await.unwrap();
        for (device, bytes) in [(&device, 100 * KIB), (&with_meta, 10 * KIB)] {
            let refused = posts(&stage, device, bytes).await;
            assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
        }
        posts(&stage, &other, 100 * KIB).await.unwrap();
        drop(place);
        posts(&stage, &device, 100 * KIB).await.unwrap();
        posts(&stage, &with_meta, 10 * KIB).await.unwrap();
    }
}
