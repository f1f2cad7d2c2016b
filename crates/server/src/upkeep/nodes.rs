//! `isobar nodes`: lists the processes that serve the platform together.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use isobar_hub::CLOCK_DIFFERS_MAX;
use isobar_store::registry::{Registry, SeenNode};

use super::UpkeepReport;
use crate::config::{self, Flags};
use crate::stores::no_registry;
use crate::{Failure, runtime};

/// Milliseconds since its last sign of life from which a process is listed as gone.
pub const NODE_GONE_AFTER: u64 = 5_000;

/// Width of the column of names, unless one is longer.
const NAME_LENGTH_MIN: usize = 24;

/// Runs `isobar nodes`. The report is sound if a process serves, no clock is wrong, and all have the same program and settings.
pub fn nodes(flags: &Flags) -> Result<UpkeepReport, Failure> {
    let settings = config::load(flags)?.settings;
    if !settings.may_have_other_nodes() {
        return Err(
            "one process serves this platform: several need stores.registry and stores.telemetry in PostgreSQL".into(),
        );
    }
    let nodes = runtime::start(1)?.block_on(async {
        let registry = Registry::open_as_it_is(&settings.registry).await.map_err(no_registry)?;
        let nodes = registry.nodes().await;
        registry.close().await?;
        Ok::<_, Failure>(nodes?)
    })?;
    report(&nodes)
}

/// Returns a line of the list, with names of this length.
fn row(length: usize, [node, version, since, settings, clock, state]: [&str; 6]) -> String {
    format!("{node:<length$} {version:<10} {since:<24} {settings:<14} {clock:>10}  {state}\n")
}

/// Returns true if the clock of a node is so wrong that it serves nothing.
fn has_wrong_clock(seen: &SeenNode) -> bool {
    seen.node.clock_ahead.unsigned_abs() > CLOCK_DIFFERS_MAX.unsigned_abs()
}

fn report(nodes: &[SeenNode]) -> Result<UpkeepReport, Failure> {
    let serving: Vec<_> = nodes.iter().filter(|seen| seen.unseen_for < NODE_GONE_AFTER).collect();
    let mut text = String::new();
    let length = nodes.iter().map(|seen| seen.node.name.len()).fold(NAME_LENGTH_MIN, usize::max);
    text.push_str(&row(length, ["node", "version", "since", "settings", "clock", "state"]));
    for seen in nodes {
        let SeenNode { node, unseen_for } = seen;
        let state = match unseen_for {
            0..NODE_GONE_AFTER if has_wrong_clock(seen) => "wrong clock: answers 503".to_owned(),
            0..NODE_GONE_AFTER => "serves".to_owned(),
            gone => format!("gone for {} s", gone / 1_000),
        };
        let (since, clock) = (node.started_at.to_string(), format!("{:+} ms", node.clock_ahead));
        text.push_str(&row(length, [&node.name, &node.version, &since, &node.settings, &clock, &state]));
    }
    let wrong = serving.iter().filter(|seen| has_wrong_clock(seen)).count();
    let mut sound = wrong == 0 && !serving.is_empty();
    if wrong > 0 {
        writeln!(text, "A clock differs by more than {CLOCK_DIFFERS_MAX} ms from the registry's: mend it.")?;
    }
    let pairs = || serving.windows(2).map(|pair| (&pair[0].node, &pair[1].node));
    if pairs().any(|(node, other)| node.settings != other.settings) {
        sound = false;
        let names: BTreeSet<&str> = pairs().flat_map(|(node, other)| node.differs_in(other)).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        writeln!(text, "The nodes have different settings{named}, and may answer differently.")?;
        if names.contains(&"public_url") {
            writeln!(
                text,
                "Without public_url each node has the address it listens on: set that of the balancer on all nodes."
            )?;
        }
    }
    if pairs().any(|(node, other)| node.version != other.version) {
        sound = false;
        writeln!(text, "The nodes have different versions, and may answer differently.")?;
    }
    writeln!(text, "{} of {} nodes serve.", serving.len() - wrong, nodes.len())?;
    Ok(UpkeepReport { text, sound })
}

#[cfg(test)]
mod tests {
    use isobar_model::time::Timestamp;
    use isobar_store::registry::ServingNode;

    use super::*;

    fn node(name: &str, settings: &str, unseen_for: u64) -> SeenNode {
        let node = ServingNode {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            settings: settings.to_owned(),
            setting_digests: vec![("mail".to_owned(), "1".to_owned()), ("public_url".to_owned(), settings.to_owned())],
            started_at: Timestamp::from_millis(0),
            clock_ahead: -3,
        };
        SeenNode { node, unseen_for }
    }

    // Holds: c17.nodes
    #[test]
    fn nodes_are_listed_with_what_differs() {
        let report = |nodes: &[SeenNode]| report(nodes).unwrap();
        assert!(!report(&[]).sound);
        let same = report(&[node("a", "x", 10), node("b", "x", 20), node("c", "y", 9_000)]);
        assert!(same.sound && same.text.contains("gone for 9 s") && same.text.ends_with("2 of 3 nodes serve.\n"));
        let mut wrong = node("b", "x", 20);
        wrong.node.clock_ahead = -501;
        let wrong = report(&[node("a", "x", 10), wrong]);
        assert!(!wrong.sound && wrong.text.contains("wrong clock"), "{}", wrong.text);
        assert!(wrong.text.ends_with("1 of 2 nodes serve.\n"), "{}", wrong.text);
        let other = report(&[node("a", "x", 10), node("b", "y", 20)]);
        assert!(!other.sound && other.text.contains("different settings (public_url)"), "{}", other.text);
        // One of an earlier version has noted no single settings.
        let mut older = node("b", "y", 20);
        older.node.setting_digests.clear();
        let told = report(&[node("a", "x", 10), older]);
        assert!(!told.sound && told.text.contains("different settings, and"), "{}", told.text);
    }
}
