//! Records what clients of a platform did, and what they were told.

/// Microseconds since the beginning of the run.
pub type Micros = u64;

/// Call of a client, with its answer.
#[derive(Clone, Debug)]
pub struct Call {
    pub device: usize,
    pub node: usize,
    pub begin: Micros,
    pub end: Micros,
    /// Status of the answer, if one came.
    pub status: Option<u16>,
    /// Nobody accepted the connection, so that nothing was done.
    pub is_refused: bool,
    pub did: Did,
}

/// Names what a call asked for, with the answer if it succeeded.
#[derive(Clone, Debug)]
pub enum Did {
    /// Posts the device's event of this number, whose id was answered.
    Post { n: u64, id: Option<String> },
    /// Queues the cloud event of this number; the id is empty where a run of the design queues it.
    Queue { n: u64, id: Option<String> },
    /// Takes a cloud event: its number, or `Some(None)` if there was none.
    Take { got: Option<Option<u64>> },
    /// Puts the setting.
    Put { value: u64 },
    /// Gets the setting.
    Get { value: Option<u64> },
    /// Reads the number of the newest event in history; 0 for none.
    Newest { n: Option<u64> },
    /// Reads the label in which the design counts; 0 for none.
    Label { n: Option<u64> },
    /// Looks for an alarm that is not acknowledged.
    LookForAlarm,
    /// Acknowledges an alarm.
    Acknowledge,
}

impl Call {
    /// Returns true if it succeeded.
    pub fn is_done(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Returns the value of the setting that it puts, or has got.
    pub fn value(&self) -> Option<u64> {
        match self.did {
            Did::Put { value } => Some(value),
            Did::Get { value } => value,
            _ => None,
        }
    }

    /// Returns true if it may have been done, or may still be, though nobody said so.
    pub fn is_unknown(&self) -> bool {
        !self.is_refused && !self.is_done()
    }
}

/// Names a kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// The process was killed and started again.
    Kill,
    /// The process was stopped, and went on.
    Stop,
    /// The time of day of a node was wrong for a while, by more than a node tolerates.
    WrongClock,
    /// All connections of a node to the database were cut.
    CutNode,
    /// Some connections of all nodes were cut.
    CutSome,
    /// Connections of a node were cut whenever they did something, again and again.
    CutCommits,
    /// The balancer of databases beside a node was killed.
    KillBalancer,
    /// A node and a primary did not reach each other.
    CutFromPrimary,
    /// A node and its clients did not reach each other.
    CutFromClients,
    /// The PostgreSQL of a primary was killed.
    KillPrimary,
    /// The PostgreSQL of a standby was killed.
    KillStandby,
    /// The process that manages a PostgreSQL was killed.
    KillPatroni,
    /// A member of etcd was killed.
    KillEtcd,
    /// All processes of a primary's machine were gone at once, without a word.
    LoseMachine,
    /// All processes of a primary's machine stopped, and went on.
    FreezeMachine,
    /// A primary's machine reached nobody.
    IsolateMachine,
    /// All processes of a standby's machine stopped, and went on.
    FreezeStandby,
    /// A person made the standby the primary.
    Switchover,
    /// The servers of a pair did not reach each other.
    CutReplication,
    /// A primary's machine and etcd did not reach each other.
    CutFromEtcd,
    /// Replication stood still, connections were cut, and then the PostgreSQL of the primary was killed.
    LoseUnreplicated,
}

/// Fault, from its beginning until all was as before.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    /// Node that it met; all of them if there is none.
    pub node: Option<usize>,
    /// Name of what it met.
    pub target: String,
    pub begin: Micros,
    pub end: Micros,
}

impl Fault {
    /// Returns true if a call was under way while it lasted.
    pub fn meets(&self, call: &Call) -> bool {
        call.begin <= self.end && self.begin <= call.end
    }

    /// Returns true if a node may have suffered from it.
    pub fn met(&self, node: usize) -> bool {
        self.node.is_none_or(|met| met == node)
    }
}

/// Describes a device as a node shows it at the end; lists are in the order of their making.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub device: usize,
    pub node: usize,
    /// Id and number of each device event in history.
    pub events: Vec<(String, u64)>,
    /// Number of each device event, and the time at which it was received, in milliseconds since 1970.
    pub received: Vec<(u64, u64)>,
    /// Id and number of each cloud event in history.
    pub queued: Vec<(String, u64)>,
    /// Counts that the window's element state has made.
    pub counts: Vec<u64>,
    /// Counts that the label has made.
    pub label_counts: Vec<u64>,
    pub label: u64,
    /// Numbers of the cloud events that wait.
    pub waiting: Vec<u64>,
    pub setting: u64,
    pub alarms: Vec<ShownAlarm>,
    /// Number of times that the design was run by an acknowledgement.
    pub acknowledgements: u64,
}

/// Alarm as a node lists it at the end.
#[derive(Clone, Debug, Default)]
pub struct ShownAlarm {
    pub is_active: bool,
    pub is_acknowledged: bool,
    pub count: u64,
    /// Number of the event that raised it last.
    pub value: u64,
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Time of day at the beginning, in milliseconds since 1970.
    pub begun_at: u64,
    pub calls: Vec<Call>,
    pub faults: Vec<Fault>,
    /// Faults after which something was not as before for too long.
    pub stuck: Vec<String>,
    /// Longest time without an acknowledged event that the faults may cost.
    pub gap_max: Option<Micros>,
    pub shown: Vec<Shown>,
}

impl History {
    /// Returns the times without an acknowledged event, each with its beginning and its end.
    pub fn gaps(&self) -> Vec<(Micros, Micros)> {
        let is_acknowledged = |call: &&Call| matches!(call.did, Did::Post { id: Some(_), .. });
        let mut ends: Vec<Micros> = self.calls.iter().filter(is_acknowledged).map(|call| call.end).collect();
        ends.sort_unstable();
        ends.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// Returns the longest time without an acknowledged event that begins between two moments.
    pub fn longest_gap(&self, begin: Micros, end: Micros) -> Micros {
        let within = self.gaps().into_iter().filter(|gap| (begin..=end).contains(&gap.0));
        within.map(|gap| gap.1 - gap.0).max().unwrap_or(0)
    }
}
