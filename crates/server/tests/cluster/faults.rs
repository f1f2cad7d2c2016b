//! Faults of nodes over one plain PostgreSQL, one every few seconds, chosen by a seed.

use std::time::Duration;

use isobar_model::time::Clock;
use isobar_power::Chance;
use rustix::process::Signal;

use super::history::{Fault, FaultKind, Micros};
use super::load::Platform;
use super::nodes::{Databases, Node};

/// Times at which a run cuts what a node's connections are doing, and the pause between two.
pub const CUTS: usize = 20;
pub const CUT_EVERY: Duration = Duration::from_millis(50);
const SOME: u64 = 3;
/// By how much a clock is wrong.
const SLIGHTLY_WRONG_MILLIS: i64 = 2_500;
const WRONG_MILLIS: i64 = 3_600_000;

/// Lets faults happen, one after the other, until the time is over; returns the nodes, which run, and the faults.
pub async fn happen(
    platform: &Platform,
    mut nodes: Vec<Node>,
    databases: &Databases,
    mut chance: Chance,
    lasts: Duration,
) -> (Vec<Node>, Vec<Fault>) {
    let mut faults = Vec::new();
    loop {
        pause(1_000 + chance.below(3_000)).await;
        if platform.now() >= u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX) {
            return (nodes, faults);
        }
        let node = usize::try_from(chance.below(nodes.len() as u64)).unwrap();
        let (kind, begin) = (choose(&mut chance), platform.now());
        println!("{:7.2} s  {kind:?} of node {node}", begin as f64 / 1e6);
        match kind {
            FaultKind::Kill => {
                let (pauses, cuts) = (chance.below(2_000), chance.percent(30));
                let met = nodes.remove(node);
                let again = tokio::task::spawn_blocking(move || killed(met)).await.unwrap();
                pause(pauses).await;
                if cuts {
                    databases.cut("true").await;
                    faults.push(fault(FaultKind::CutSome, node, begin, platform.now()));
                }
                let again = tokio::task::spawn_blocking(move || started(again)).await.unwrap();
                nodes.insert(node, again);
            }
            FaultKind::Stop => {
                nodes[node].signal(Signal::STOP);
                pause(3_000 + chance.below(5_000)).await;
                nodes[node].signal(Signal::CONT);
            }
            FaultKind::WrongClock => set_clock_wrong(&nodes[node], &mut chance).await,
            FaultKind::CutNode => databases.cut(&Databases::of_node(node)).await,
            FaultKind::CutSome => databases.cut(&format!("pid % {SOME} = {}", chance.below(SOME))).await,
            _ => cut_commits(databases, node).await,
        }
        faults.push(fault(kind, node, begin, platform.now()));
    }
}

/// Sets the clock of a node ahead or behind, by seconds or an hour, for some seconds.
pub async fn set_clock_wrong(node: &Node, chance: &mut Chance) {
    let off = if chance.percent(50) { SLIGHTLY_WRONG_MILLIS } else { WRONG_MILLIS };
    node.set_clock_ahead(if chance.percent(50) { off } else { -off });
    pause(2_000 + chance.below(4_000)).await;
    node.set_clock_ahead(0);
}

/// Cuts a node's connections whenever they do something.
pub async fn cut_commits(databases: &Databases, node: usize) {
    for _ in 0..CUTS {
        databases.cut(&format!("state <> 'idle' AND {}", Databases::of_node(node))).await;
        Clock::System.sleep(CUT_EVERY).await;
    }
}

fn fault(kind: FaultKind, node: usize, begin: Micros, end: Micros) -> Fault {
    let node = (kind != FaultKind::CutSome).then_some(node);
    Fault { kind, node, target: node.map_or_else(String::new, |node| format!("node {node}")), begin, end }
}

pub fn killed(mut node: Node) -> Node {
    node.kill();
    node
}

pub fn started(mut node: Node) -> Node {
    node.go_on();
    node
}

const fn choose(chance: &mut Chance) -> FaultKind {
    match chance.below(100) {
        0..30 => FaultKind::Kill,
        30..50 => FaultKind::Stop,
        50..65 => FaultKind::WrongClock,
        65..75 => FaultKind::CutNode,
        75..85 => FaultKind::CutSome,
        _ => FaultKind::CutCommits,
    }
}

pub async fn pause(millis: u64) {
    Clock::System.sleep(Duration::from_millis(millis)).await;
}
