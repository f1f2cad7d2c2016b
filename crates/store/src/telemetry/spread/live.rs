//! Sends events of all databases to followers, in one order.
//!
//! While somebody follows, this follows each database. Every 100 ms it notes a mark of what they have sent, if there is
//! anything new, reads the marks of other processes, and sends the events that a mark reaches once all databases of the mark
//! have come so far here. One that is away here has a gap up to the mark, so that the events of the others go on: followers
//! read what is missing from history, and those that cannot end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use super::member::Member;
use super::order::{NO_MARK, end_of, mark_of, marked};
use crate::error::{Result, StoreError};
use crate::telemetry::marks::{MarkedPlaces, StreamMark, StreamMarks};
use crate::telemetry::postgres::EventPlace;
use crate::telemetry::recent_events::{FOLLOWER_LAG_EVENTS, RecentEvents};
use crate::telemetry::{Following, StreamMessage, StreamPosition, Telemetry as _};

/// Pause between two marks of a process, while somebody follows.
const MARK_EVERY: Duration = Duration::from_millis(100);
/// Time that a follower waits until events up to its position have come, and (next constant) the pause between two looks.
const MARKED_WITHIN: Duration = Duration::from_secs(5);
const MARKED_LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time for which marks are kept: eight days, as streams resume after a week at most.
const MARKS_KEPT: Duration = Duration::from_secs(8 * 24 * 3600);
/// Marks that are read at a time.
const MARKS_A_LOOK: u32 = 1_000;

/// Error of events that a mark reaches and a database has not sent here.
#[derive(Debug, thiserror::Error)]
#[error("a telemetry database has not sent the events up to mark {0}")]
struct MarkNotReached(u64);

/// All followers, and how far they have got.
pub struct SpreadEvents {
    members: Arc<[Member]>,
    pub marks: Arc<dyn StreamMarks>,
    /// `None` while nobody follows.
    merging: tokio::sync::Mutex<Option<Merging>>,
    /// Number of the mark up to which events were sent.
    sent: Mutex<u64>,
    messages: broadcast::Sender<StreamMessage>,
}

/// The events of the databases that are not sent yet.
struct Merging {
    /// One for each database.
    heads: Vec<HeardDatabase>,
    /// The newest mark that was read, with the places of all databases as of it.
    known: StreamMark,
    /// Marks that were read, and not sent.
    waiting: VecDeque<StreamMark>,
    /// Places of all databases up to which events were sent.
    sent: MarkedPlaces,
    /// Events that followers have not received yet.
    recent: RecentEvents,
}

/// Events that a database has sent, until they are sent on.
struct HeardDatabase {
    database: u16,
    messages: broadcast::Receiver<StreamMessage>,
    events: VecDeque<(EventPlace, StreamMessage)>,
    /// Place up to which it has sent its events.
    reached: EventPlace,
    /// Place up to which some were not sent, and are in history.
    gap: Option<EventPlace>,
}

impl HeardDatabase {
    async fn begin(member: &Member) -> Self {
        let follows = member.store().follow_from(StreamPosition::first());
        // Events since the last place of a database that does not answer are sent once it does.
        let Following { from, messages } = member.ask(follows).await.unwrap_or_else(|_| member.store().follow());
        let (database, reached) = (member.number(), EventPlace::of(from));
        Self { database, messages, events: VecDeque::new(), reached, gap: None }
    }

    /// Takes what the database has sent by now.
    fn hear(&mut self, member: &Member, recent: &mut RecentEvents) {
        // Read before the messages: all up to here are among them.
        let reached = EventPlace::of(member.store().follow().from);
        let mut has_gap = false;
        loop {
            match self.messages.try_recv() {
                Ok(StreamMessage::Event { position, device, lineage, event }) => {
                    if let Some(event) = event.upgrade() {
                        recent.keep(event);
                    }
                    let message = StreamMessage::Event { position, device, lineage, event };
                    self.events.push_back((EventPlace::of(position), message));
                }
                Ok(StreamMessage::Gap) | Err(TryRecvError::Lagged(_)) => has_gap = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        self.reached = self.reached.max(reached);
        if has_gap || self.events.len() > FOLLOWER_LAG_EVENTS {
            // Read after the messages: what is missing is before it.
            self.reached = self.reached.max(EventPlace::of(member.store().follow().from));
            self.gap = Some(self.reached);
            self.events.clear();
        }
    }

    /// Returns true if it has sent events, or has missed some, behind the newest marked place, and has come past that.
    /// Events may be further than what was noted of it; a mark of that would be behind the newest one.
    fn has_news(&self, known: Option<&EventPlace>) -> bool {
        let newest = self.events.back().map(|(place, _)| *place).max(self.gap);
        newest.is_some_and(|newest| known.is_none_or(|known| newest.min(self.reached) > *known))
    }

    /// Returns true if it has sent here all events up to a place, or is away here: then it misses those up to there.
    fn reaches(&mut self, place: EventPlace, is_away: bool) -> bool {
        if self.reached < place && is_away {
            self.gap = self.gap.max(Some(place));
            return true;
        }
        self.reached >= place
    }

    /// Takes the events up to the place of a mark, behind the place that was sent; returns true if some are missing.
    fn send(
        &mut self,
        mark: u64,
        (sent, until): (Option<EventPlace>, EventPlace),
        events: &mut Vec<StreamMessage>,
    ) -> bool {
        while self.events.front().is_some_and(|(place, _)| *place <= until) {
            let Some((place, message)) = self.events.pop_front() else { break };
            if sent.is_some_and(|sent| place <= sent) {
                continue;
            }
            if let StreamMessage::Event { device, lineage, event, .. } = message {
                let position = marked(mark, self.database, place);
                events.push(StreamMessage::Event { position, device, lineage, event });
            }
        }
        let is_missing = self.gap.is_some_and(|gap| sent.is_none_or(|sent| gap > sent));
        self.gap = self.gap.filter(|gap| *gap > until);
        is_missing
    }
}

impl SpreadEvents {
    /// Creates the followers of these databases; there are none yet.
    pub fn new(members: Arc<[Member]>, marks: Arc<dyn StreamMarks>) -> Self {
        let messages = broadcast::Sender::new(FOLLOWER_LAG_EVENTS);
        Self { members, marks, merging: tokio::sync::Mutex::default(), sent: Mutex::new(0), messages }
    }

    /// Returns true if there are followers.
    pub fn is_any(&self) -> bool {
        self.messages.receiver_count() > 0
    }

    /// Registers a follower from here on, beside another one: without any, the place may be an old one.
    pub fn follow(&self) -> Following {
        let sent = self.sent.lock();
        Following { from: end_of(*sent), messages: self.messages.subscribe() }
    }

    /// Registers a follower from this position on, or a later one.
    pub async fn follow_from(&self, position: StreamPosition) -> Result<Following> {
        let _begins = self.messages.subscribe();
        let target = mark_of(position);
        let is_there = |merging: &Merging| {
            // Another process may have been first with a mark.
            !merging.has_news() && (target == NO_MARK || merging.sent_mark() >= target)
        };
        self.advance_until(target, &is_there).await?;
        Ok(self.follow())
    }

    /// Returns the position of a place, which is marked if it is not yet.
    pub async fn position(&self, database: u16, place: EventPlace) -> Result<StreamPosition> {
        let places = [(database, place)];
        let mut first = self.marks.marks_of(&places).await?;
        if first.contains(&None) {
            let _begins = self.messages.subscribe();
            let is_known = |merging: &Merging| merging.known.places.get(&database).is_some_and(|known| *known >= place);
            self.advance_until(NO_MARK, &is_known).await?;
            first = self.marks.marks_of(&places).await?;
        }
        match first.as_slice() {
            [Some(mark)] => Ok(marked(*mark, database, place)),
            _ => Err(StoreError::unavailable(MarkNotReached(NO_MARK))),
        }
    }

    async fn advance_until(&self, target: u64, is_there: &(dyn Fn(&Merging) -> bool + Send + Sync)) -> Result<()> {
        let begun = Clock::System.instant();
        loop {
            let mut merging = self.merging.lock().await;
            if is_there(self.advance(&mut merging).await?) {
                return Ok(());
            }
            drop(merging);
            if Clock::System.elapsed(begun) > MARKED_WITHIN {
                return Err(StoreError::unavailable(MarkNotReached(target)));
            }
            Clock::System.sleep(MARKED_LOOK_EVERY).await;
        }
    }

    /// Forgets the marks behind which no stream resumes.
    pub async fn forget_marks(&self) {
        if let Err(error) = self.marks.marks_forget(MARKS_KEPT).await {
            tracing::warn!(%error, "cannot remove old marks of events, will retry");
        }
    }

    /// Sends events for ever.
    pub async fn run(&self) {
        loop {
            Clock::System.sleep(MARK_EVERY).await;
            if !self.is_any() {
                let mut merging = self.merging.lock().await;
                // Somebody may have come while this waited.
                if !self.is_any() {
                    *merging = None;
                }
                continue;
            }
            if let Err(error) = self.advance(&mut *self.merging.lock().await).await {
                tracing::warn!(%error, "cannot read or write marks of events, will retry");
            }
        }
    }

    /// Marks what is new, and sends what is marked.
    async fn advance<'m>(&self, merging: &'m mut Option<Merging>) -> Result<&'m Merging> {
        let merging = match merging {
            Some(merging) => merging,
            none => {
                let begun = self.begin().await?;
                let mut sent = self.sent.lock();
                if std::mem::replace(&mut *sent, begun.known.number) != begun.known.number {
                    // Who followed before this began has missed what is before the mark.
                    let _ = self.messages.send(StreamMessage::Gap);
                }
                drop(sent);
                return Ok(none.insert(begun));
            }
        };
        let waiting: usize = merging.heads.iter().map(|head| head.events.len()).sum();
        merging.recent.keep_only(waiting + self.messages.len());
        for (head, member) in merging.heads.iter_mut().zip(&*self.members) {
            head.hear(member, &mut merging.recent);
        }
        self.read_marks(merging).await?;
        let places: MarkedPlaces = merging.news().map(|head| (head.database, head.reached)).collect();
        if !places.is_empty() {
            self.add_mark(merging, places).await?;
        }
        while merging.is_reached(&self.members) {
            let Some(mark) = merging.waiting.pop_front() else { break };
            self.send(merging, &mark);
        }
        Ok(merging)
    }

    /// Begins to follow all databases, from a mark of what they have sent so far.
    async fn begin(&self) -> Result<Merging> {
        let heads = futures::future::join_all(self.members.iter().map(HeardDatabase::begin)).await;
        loop {
            let mut known = self.marks.mark_at(u64::MAX).await?;
            let is_behind =
                |head: &&HeardDatabase| known.places.get(&head.database).is_none_or(|known| *known < head.reached);
            let places: MarkedPlaces =
                heads.iter().filter(is_behind).map(|head| (head.database, head.reached)).collect();
            let mark = StreamMark { number: known.number + 1, places };
            if !mark.places.is_empty() {
                if !self.marks.mark_add(&mark).await? {
                    continue;
                }
                known.number = mark.number;
                known.places.extend(mark.places);
            }
            let sent = known.places.clone();
            return Ok(Merging { heads, known, waiting: VecDeque::new(), sent, recent: RecentEvents::default() });
        }
    }

    async fn read_marks(&self, merging: &mut Merging) -> Result<()> {
        loop {
            let marks = self.marks.marks_after(merging.known.number, MARKS_A_LOOK).await?;
            let are_all = marks.len() < MARKS_A_LOOK as usize;
            marks.into_iter().for_each(|mark| merging.learn(mark));
            if are_all {
                return Ok(());
            }
        }
    }

    /// Adds a mark, unless another process was first: then its mark is read next time, and this one added behind it.
    async fn add_mark(&self, merging: &mut Merging, places: MarkedPlaces) -> Result<()> {
        let mark = StreamMark { number: merging.known.number + 1, places };
        if self.marks.mark_add(&mark).await? {
            merging.learn(mark);
        }
        Ok(())
    }

    fn send(&self, merging: &mut Merging, mark: &StreamMark) {
        let (mut events, mut has_gap) = (Vec::new(), false);
        for (database, until) in &mark.places {
            let sent = merging.sent.insert(*database, *until);
            match merging.heads.iter_mut().find(|head| head.database == *database) {
                Some(head) => has_gap |= head.send(mark.number, (sent, *until), &mut events),
                // A database that this process does not know yet: who reads its events is refused.
                None => has_gap = true,
            }
        }
        let mut sent = self.sent.lock();
        *sent = mark.number;
        let messages = if has_gap { vec![StreamMessage::Gap] } else { events };
        for message in messages {
            // The channel may have no receiver.
            let _ = self.messages.send(message);
        }
    }
}

impl Merging {
    /// Returns the databases that have sent what no mark reaches.
    fn news(&self) -> impl Iterator<Item = &HeardDatabase> {
        self.heads.iter().filter(|head| head.has_news(self.known.places.get(&head.database)))
    }

    /// Returns true if a database has sent what no mark reaches.
    fn has_news(&self) -> bool {
        self.news().next().is_some()
    }

    /// Returns the number of the mark up to which events were sent.
    fn sent_mark(&self) -> u64 {
        self.waiting.front().map_or(self.known.number, |next| next.number - 1)
    }

    fn learn(&mut self, mark: StreamMark) {
        self.known.number = mark.number;
        self.known.places.extend(mark.places.iter().map(|(database, place)| (*database, *place)));
        self.waiting.push_back(mark);
    }

    /// Returns true if the databases have sent here what the next mark reaches, or are away here.
    fn is_reached(&mut self, members: &[Member]) -> bool {
        let Some(mark) = self.waiting.front() else { return false };
        self.heads.iter_mut().zip(members).all(|(head, member)| {
            mark.places.get(&head.database).is_none_or(|place| head.reaches(*place, member.here().is_err()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(transaction: i64) -> EventPlace {
        EventPlace::end_of(transaction, isobar_model::time::Timestamp::default())
    }

    fn head(reached: i64, events: &[i64]) -> HeardDatabase {
        let events = events.iter().map(|transaction| (place(*transaction), StreamMessage::Gap)).collect();
        let messages = broadcast::Sender::new(1).subscribe();
        HeardDatabase { database: 1, messages, events, reached: place(reached), gap: None }
    }

    #[test]
    fn place_before_the_newest_mark_is_no_news() {
        // Another thread has sent the second event after it was noted how far the database is.
        assert!(!head(100, &[90, 160]).has_news(Some(&place(150))));
        assert!(!head(100, &[90, 160]).has_news(Some(&place(100))));
        assert!(head(160, &[90, 160]).has_news(Some(&place(150))));
        assert!(head(100, &[90, 160]).has_news(Some(&place(95))) && head(100, &[90]).has_news(None));
        assert!(!head(160, &[90]).has_news(Some(&place(95))));
    }

    #[test]
    fn database_that_is_away_misses_what_a_mark_reaches() {
        let mut head = head(100, &[90]);
        assert!(head.reaches(place(100), false) && !head.reaches(place(101), false) && head.gap.is_none());
        assert!(head.reaches(place(100), true) && head.gap.is_none());
        assert!(head.reaches(place(101), true));
        let mut events = Vec::new();
        assert!(head.send(7, (Some(place(80)), place(101)), &mut events) && head.gap.is_none());
        // It is back, and sends what followers have from history.
        head.events.push_back((place(101), StreamMessage::Gap));
        assert!(!head.send(8, (Some(place(101)), place(102)), &mut events) && head.events.is_empty());
    }
}
