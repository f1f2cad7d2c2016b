//! Faults of machines, chosen by a seed: some meet nodes and others pairs of databases, independently of each other.

use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::Chance;
use parking_lot::Mutex;
use rustix::process::Signal;

use super::faults::{CUT_EVERY, CUTS, cut_commits, killed, pause, set_clock_wrong, started};
use super::history::{Fault, FaultKind, Micros};
use super::load::Platform;
use super::machines::{MEMBERS, Machines, Pair};
use super::nodes::{Databases, Node};

/// Longest time without an acknowledged event. A machine that is lost is replaced after `ttl`, 20 s, and what it takes
/// to find that out.
pub const GAP_MAX: Micros = 40_000_000;
/// Longest time until a pair has a primary and a standby again.
const RECOVERY_MAX: Duration = Duration::from_secs(120);
/// Shortest and longest pause between two faults, in milliseconds.
const PAUSE_MIN: u64 = 4_000;
const PAUSE_MAX: u64 = 12_000;
/// Time that a node is stopped at most, and a machine is away or cut from another.
const STOPPED_MAX: u64 = 30_000;
/// Longest time until Patroni knows of a fault, in milliseconds.
const UNNOTICED: u64 = 3_000;
/// Time for which replication stands still: less than `wal_sender_timeout`, after which the primary does without.
const STANDSTILL_MAX: u64 = 4_000;

const OF_NODES: [FaultKind; 11] = [
    FaultKind::Kill,
    FaultKind::Kill,
    FaultKind::Kill,
    FaultKind::Stop,
    FaultKind::WrongClock,
    FaultKind::WrongClock,
    FaultKind::CutCommits,
    FaultKind::CutCommits,
    FaultKind::KillBalancer,
    FaultKind::CutFromPrimary,
    FaultKind::CutFromClients,
];
const OF_PAIRS: [FaultKind; 14] = [
    FaultKind::KillPrimary,
    FaultKind::KillPrimary,
    FaultKind::KillStandby,
    FaultKind::KillPatroni,
    FaultKind::KillEtcd,
    FaultKind::LoseMachine,
    FaultKind::FreezeMachine,
    FaultKind::IsolateMachine,
    FaultKind::FreezeStandby,
    FaultKind::Switchover,
    FaultKind::CutReplication,
    FaultKind::CutFromEtcd,
    FaultKind::LoseUnreplicated,
    FaultKind::LoseUnreplicated,
];

struct Disasters<'d> {
    platform: &'d Platform,
    databases: &'d Databases,
    machines: &'d Machines,
    nodes: usize,
    lasts: Duration,
    faults: Mutex<Vec<Fault>>,
    stuck: Mutex<Vec<String>>,
}

/// Faults of a run, and those after which something was not as before for too long.
pub struct Damage {
    pub faults: Vec<Fault>,
    pub stuck: Vec<String>,
}

/// Lets faults happen until the time is over; returns the nodes, which run.
pub async fn happen(
    platform: &Platform,
    nodes: Vec<Node>,
    databases: &Databases,
    machines: &Machines,
    mut chance: Chance,
    lasts: Duration,
) -> (Vec<Node>, Damage) {
    let (faults, stuck) = (Mutex::default(), Mutex::default());
    let disasters = Disasters { platform, databases, machines, nodes: nodes.len(), lasts, faults, stuck };
    let of_nodes = disasters.meet_nodes(nodes, Chance::new(chance.number()));
    let (nodes, ()) = tokio::join!(of_nodes, disasters.meet_pairs(Chance::new(chance.number())));
    let mut faults = disasters.faults.into_inner();
    faults.sort_by_key(|fault| fault.begin);
    (nodes, Damage { faults, stuck: disasters.stuck.into_inner() })
}

impl Disasters<'_> {
    /// Waits for the next fault; returns false if the time is over.
    async fn comes(&self, chance: &mut Chance) -> bool {
        pause(PAUSE_MIN + chance.below(PAUSE_MAX - PAUSE_MIN)).await;
        self.platform.now() < u64::try_from(self.lasts.as_micros()).unwrap_or(Micros::MAX)
    }

    fn tells(&self, kind: FaultKind, target: &str) -> Micros {
        println!("{:7.2} s  {kind:?} {target}", self.seconds());
        self.platform.now()
    }

    fn seconds(&self) -> f64 {
        self.platform.now() as f64 / 1e6
    }

    fn remembers(&self, kind: FaultKind, node: Option<usize>, target: String, begin: Micros) {
        self.faults.lock().push(Fault { kind, node, target, begin, end: self.platform.now() });
    }

    async fn meet_nodes(&self, mut nodes: Vec<Node>, mut chance: Chance) -> Vec<Node> {
        while self.comes(&mut chance).await {
            let node = usize::try_from(chance.below(nodes.len() as u64)).unwrap();
            let kind = choose(&OF_NODES, &mut chance);
            let (machine, away) = (Machines::node(node), chance.below(STOPPED_MAX));
            let pair = pair(&mut chance);
            let both = chance.percent(70);
            let mut target = machine.clone();
            let begin = self.tells(kind, &target);
            match kind {
                FaultKind::Kill => {
                    let met = nodes.remove(node);
                    let met = tokio::task::spawn_blocking(move || killed(met)).await.unwrap();
                    pause(away / 10).await;
                    nodes.insert(node, tokio::task::spawn_blocking(move || started(met)).await.unwrap());
                }
                FaultKind::Stop => {
                    nodes[node].signal(Signal::STOP);
                    // The longest time of all matters most.
                    pause(if both { STOPPED_MAX } else { away }).await;
                    nodes[node].signal(Signal::CONT);
                }
                FaultKind::WrongClock => set_clock_wrong(&nodes[node], &mut chance).await,
                FaultKind::CutCommits if both => {
                    for _ in 0..CUTS {
                        self.machines.cut_at_balancer(node);
                        Clock::System.sleep(CUT_EVERY).await;
                    }
                }
                FaultKind::CutCommits => cut_commits(self.databases, node).await,
                FaultKind::KillBalancer => {
                    self.machines.signal(&format!("haproxy-{machine}"), Signal::KILL);
                }
                _ => {
                    let other = match (kind, self.machines.pair(pair).await) {
                        (FaultKind::CutFromPrimary, Some(pair)) => pair.primary,
                        (FaultKind::CutFromPrimary, None) => continue,
                        _ => "clients".to_owned(),
                    };
                    self.cut(&machine, &other, both, away).await;
                    target = format!("{machine} {} {other}", if both { "and" } else { "to" });
                }
            }
            self.remembers(kind, Some(node), target, begin);
        }
        nodes
    }

    /// Cuts the way from a machine to another for a time.
    async fn cut(&self, from: &str, to: &str, both: bool, lasts: u64) {
        self.machines.cut(from, to, both);
        pause(lasts).await;
        self.machines.mend(from, to, both);
    }

    async fn meet_pairs(&self, mut chance: Chance) {
        while self.comes(&mut chance).await {
            let (kind, name) = (choose(&OF_PAIRS, &mut chance), pair(&mut chance));
            let Some(pair) = self.machines.pair(name).await else { continue };
            let target = match kind {
                FaultKind::KillStandby | FaultKind::FreezeStandby => pair.standby.clone(),
                FaultKind::KillPatroni if chance.percent(50) => pair.standby.clone(),
                FaultKind::KillEtcd => format!("etcd-{}", 1 + chance.below(MEMBERS)),
                _ => pair.primary.clone(),
            };
            let begin = self.tells(kind, &target);
            self.meet_pair(kind, &pair, &target, &mut chance).await;
            let Some(now) = self.whole(name).await else {
                self.stuck.lock().push(format!("pair {name} was not whole again after {kind:?} {target} at {begin}"));
                self.remembers(kind, None, target, begin);
                continue;
            };
            println!("{:7.2} s  pair {name} is whole again, {} is the primary", self.seconds(), now.primary);
            let takes_over = if now.primary == pair.primary { "" } else { ": the other takes over" };
            self.remembers(kind, None, target + takes_over, begin);
        }
    }

    async fn meet_pair(&self, kind: FaultKind, pair: &Pair, target: &str, chance: &mut Chance) {
        let (machines, away, both) = (self.machines, chance.below(STOPPED_MAX), chance.percent(70));
        let away = if chance.percent(60) { STOPPED_MAX } else { away };
        match kind {
            FaultKind::KillPrimary | FaultKind::KillStandby => {
                machines.signal(&format!("postgres-{target}"), Signal::KILL);
            }
            FaultKind::KillPatroni => drop(machines.signal(&format!("patroni-{target}"), Signal::KILL)),
            FaultKind::KillEtcd => drop(machines.signal(target, Signal::KILL)),
            FaultKind::LoseMachine => {
                // First the network, so that nobody is told by a connection that ends.
                machines.isolate(target);
                machines.keeps_down(&format!("patroni-{target}"));
                Machines::signal_all(target, Signal::KILL);
                pause(away).await;
                machines.join(target);
                machines.lets_start(&format!("patroni-{target}"));
            }
            FaultKind::FreezeMachine | FaultKind::FreezeStandby => {
                Machines::signal_all(target, Signal::STOP);
                pause(away).await;
                Machines::signal_all(target, Signal::CONT);
            }
            FaultKind::IsolateMachine => {
                machines.isolate(target);
                pause(away).await;
                machines.join(target);
            }
            FaultKind::Switchover => println!("{}", machines.switch(pair)),
            FaultKind::CutReplication => self.cut(target, &pair.standby, both, away).await,
            FaultKind::CutFromEtcd => {
                let members: Vec<String> = (1..=MEMBERS).map(|number| format!("etcd-{number}")).collect();
                members.iter().for_each(|member| machines.cut(target, member, both));
                pause(away).await;
                members.iter().for_each(|member| machines.mend(target, member, both));
            }
            _ => self.lose_unreplicated(pair, chance).await,
        }
    }

    /// Kills a primary that shows what its standby does not have: PostgreSQL stops waiting for the standby where a
    /// connection is cut.
    async fn lose_unreplicated(&self, pair: &Pair, chance: &mut Chance) {
        self.machines.cut(&pair.primary, &pair.standby, true);
        pause(500 + chance.below(1_000)).await;
        if chance.percent(50) {
            (0..self.nodes).for_each(|node| self.machines.cut_at_balancer(node));
        } else {
            self.databases.cut("state <> 'idle'").await;
        }
        pause(chance.below(STANDSTILL_MAX)).await;
        self.machines.signal(&format!("postgres-{}", pair.primary), Signal::KILL);
        pause(STANDSTILL_MAX).await;
        self.machines.mend(&pair.primary, &pair.standby, true);
    }

    /// Waits until a pair has a primary and a standby; returns none if that takes too long.
    async fn whole(&self, name: char) -> Option<Pair> {
        // Patroni looks every two seconds: until then it knows of nothing.
        pause(UNNOTICED).await;
        let whole = async {
            loop {
                if let Some(pair) = self.machines.pair(name).await {
                    return pair;
                }
                pause(200).await;
            }
        };
        Clock::System.timeout(RECOVERY_MAX, whole).await.ok()
    }
}

fn choose(kinds: &[FaultKind], chance: &mut Chance) -> FaultKind {
    kinds[usize::try_from(chance.below(kinds.len() as u64)).unwrap()]
}

fn pair(chance: &mut Chance) -> char {
    if chance.percent(40) { 'A' } else { 'B' }
}
