//! The calls that are being made, and how many of them go to each host.

use std::collections::{HashMap, HashSet};

use tokio::task::{self, JoinSet};

use crate::supervisor::spawn_guarded_in;

/// Calls under way at the same time, and those to one host.
const CALLS_MAX: usize = 64;
const CALLS_TO_A_HOST_MAX: usize = 4;

/// The calls that are being made.
#[derive(Default)]
pub(super) struct UnderWay {
    tasks: JoinSet<()>,
    calls: HashMap<task::Id, (String, String)>,
    ids: HashSet<String>,
    hosts: HashMap<String, usize>,
}

impl UnderWay {
    /// Whether this call is being made.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Whether one more call may be made, beside `begins` others that are about to.
    pub fn has_room_beside(&self, begins: usize) -> bool {
        self.ids.len() + begins < CALLS_MAX
    }

    pub fn begin(&mut self, id: String, host: String, work: impl Future<Output = ()> + Send + 'static) {
        let task = spawn_guarded_in(&mut self.tasks, "call", work).id();
        *self.hosts.entry(host.clone()).or_default() += 1;
        self.ids.insert(id.clone());
        self.calls.insert(task, (id, host));
    }

    /// How many more may be made to a host.
    pub fn free_of(&self, host: &str) -> usize {
        CALLS_TO_A_HOST_MAX.saturating_sub(self.hosts.get(host).copied().unwrap_or_default())
    }

    /// Waits until one has ended, for ever if there is none.
    pub async fn end_one(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let task = ended.map_or_else(|failed| failed.id(), |(id, ())| id);
        let Some((id, host)) = self.calls.remove(&task) else { return };
        self.ids.remove(&id);
        if let Some(count) = self.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}
