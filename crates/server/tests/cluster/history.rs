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
}

impl Call {
    /// Returns true if it succeeded.
    pub fn is_done(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
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
    /// All connections of a node to the database were cut.
    CutNode,
    /// Some connections of all nodes were cut.
    CutSome,
    /// Connections of a node were cut whenever they did something, again and again.
    CutCommits,
}

/// Fault of a node, from its beginning until the node was as before. A cut of some connections concerns all nodes.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub node: usize,
    pub begin: Micros,
    pub end: Micros,
}

/// Describes a device as a node shows it at the end; lists are in the order of their making.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub device: usize,
    pub node: usize,
    /// Id and number of each device event in history.
    pub events: Vec<(String, u64)>,
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
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    pub faults: Vec<Fault>,
    pub shown: Vec<Shown>,
}
