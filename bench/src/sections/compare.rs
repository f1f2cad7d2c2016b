//! The main road of two builds in turns: whether a change made it faster. Rates swing with the machine from minute to
//! minute, so that only rounds beside each other tell; processor time an event swings less.

use std::fmt::Write as _;
use std::path::Path;

use super::{House, Measured, grouped, median, turns};
use crate::setup::payload;
use crate::wrk::Ammunition;
use crate::{Failure, Options};

/// A build under load.
struct Build {
    house: House,
    posts: Ammunition,
    rounds: Vec<Measured>,
}

impl Build {
    async fn start(options: &Options, program: &Path) -> Result<Self, Failure> {
        let house = House::build(&Options { isobar: program.to_owned(), ..options.clone() }).await?;
        let posts = Ammunition::posts(&house.devices(options.devices).await?, payload)?;
        Ok(Self { house, posts, rounds: Vec::new() })
    }
}

/// Prints how `options.isobar` does beside the build `against`, for each number of connections.
pub async fn measure(options: &Options, against: &Path) -> Result<(), Failure> {
    let mut table = String::from(
        "| connections | events/s before | now | ratio | µs an event before | now | ratio |\n|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut builds = [Build::start(options, against).await?, Build::start(options, &options.isobar).await?];
    for &connections in &options.connections {
        for (seconds, counts) in turns(options) {
            for build in &mut builds {
                let measured = build.house.fire(options, &build.posts, connections, seconds).await?;
                if counts {
                    build.rounds.push(measured);
                }
            }
        }
        let [before, now] = &mut builds;
        let (before, now) = (std::mem::take(&mut before.rounds), std::mem::take(&mut now.rounds));
        let of =
            |rounds: &Vec<Measured>, key: fn(&Measured) -> f64| median(rounds.clone(), key).map_or(0.0, |m| key(&m));
        let rates = [&before, &now].map(|rounds| of(rounds, |measured| measured.round.rate));
        let costs = [&before, &now].map(|rounds| of(rounds, |measured| measured.micros));
        writeln!(
            table,
            "| {} | {} | {} | {:.3} | {:.2} | {:.2} | {:.3} |",
            grouped(connections as f64),
            grouped(rates[0]),
            grouped(rates[1]),
            rates[1] / rates[0],
            costs[0],
            costs[1],
            costs[1] / costs[0],
        )?;
    }
    for build in builds {
        build.house.server.stop().await?;
    }
    writeln!(
        table,
        "\nMedians of {} alternating rounds of {} s; {} devices.",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64)
    )?;
    print!("{table}");
    Ok(())
}
