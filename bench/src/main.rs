//! What Isobar can do on this machine, beside what a bare HTTP server can: the figures of docs/performance.md.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures how long things take on this machine, and waits beside them"
)]

mod api;
mod echo;
mod load;
mod page;
mod process;
mod registry;
mod sections;
mod setup;
mod wire;
mod wrk;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Why a measurement could not be made.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures Isobar
#[derive(Debug, Parser)]
#[command(name = "isobar-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, and write the figures into docs/performance.md
    Run(Box<Options>),
    /// The baseline: an HTTP server that answers each body with itself
    Echo {
        /// Threads that serve requests
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Section {
    /// Events a second beside a bare echo, at several numbers of connections
    Road,
    /// The road over HTTPS beside HTTP
    Tls,
    /// The rate of each million events
    Flat,
    /// Reads when much is stored
    Reads,
    /// Deletion of a long series, and its space
    Delete,
    /// Questions in buckets, of short and long series
    Buckets,
    /// Every list of a large registry
    Lists,
    /// Filters and counts of a large fleet, and devices made in bulk
    Fleet,
    /// Reads of one device beside a bare echo
    Device,
    /// Ten thousand settings in one call
    Settings,
    /// Batches of events beside single posts
    Batch,
    /// Deliveries of a thousand devices
    Webhook,
    /// What a condition and a codec cost, and what an endless codec does to others
    Designs,
    /// A label with every event, and what a neighbour notices of it
    Outbox,
    /// Start, restart after kill -9, memory
    Start,
    /// What a well-behaved tenant notices of each hostile one
    Neighbours,
    /// Several processes over databases of PostgreSQL, beside one with the embedded store
    Nodes,
}

/// Flags of `isobar-bench run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The isobar program, built for release
    #[arg(long)]
    isobar: PathBuf,
    /// Only these sections
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// Nothing but the main road of `--isobar` beside that of an earlier build, in turns; writes nothing
    #[arg(long, value_name = "PROGRAM", conflicts_with = "only")]
    against: Option<PathBuf>,
    /// Small sizes: shows that everything runs, in a few minutes; writes nothing
    #[arg(long)]
    quick: bool,
    /// Print the figures and leave docs/performance.md alone
    #[arg(long)]
    no_write: bool,
    /// Where temporary data folders go: a real disk
    #[arg(long, default_value = "/var/tmp")]
    folder: PathBuf,
    /// Threads that serve requests, in Isobar and in the baseline [default: processors - 1, at least 1]
    #[arg(long)]
    threads: Option<usize>,
    /// Threads of wrk
    #[arg(long, default_value_t = 1)]
    wrk_threads: usize,
    /// road, tls: numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024")]
    connections: Vec<usize>,
    /// road, tls, device, designs, outbox: rounds, of which the median counts; neighbours: turns; start: kills, of which the slowest restart counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// road, tls, device, designs, outbox, start: seconds of a round; neighbours: of both parts of a turn
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// road, tls, device, designs, outbox: devices; start: devices that post until the server is killed
    #[arg(long, default_value_t = 1_000)]
    devices: usize,
    /// flat, reads, delete, start: devices
    #[arg(long, default_value_t = 100_000)]
    flat_devices: usize,
    /// flat, reads, delete, start: events that are stored first
    #[arg(long, default_value_t = 10_000_000)]
    flat_events: usize,
    /// reads, delete: values in the long series; buckets: in the short one
    #[arg(long, default_value_t = 1_000_000)]
    series: usize,
    /// buckets: values in the long series
    #[arg(long, default_value_t = 100_000_000)]
    long_series: usize,
    /// lists, fleet: devices
    #[arg(long, default_value_t = 100_000)]
    list_devices: usize,
    /// lists, fleet: users
    #[arg(long, default_value_t = 10_000)]
    list_users: usize,
    /// nodes: empty databases of PostgreSQL, which stay; the first has the registry too
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    postgres: Vec<String>,
    /// neighbours: only these hostile tenants; writes nothing
    #[arg(long, value_enum, value_delimiter = ',')]
    neighbours: Vec<sections::Hostile>,
}

impl Options {
    /// Threads that serve requests.
    pub fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        self.threads.unwrap_or(processors.saturating_sub(1)).max(1)
    }

    fn includes(&self, section: Section) -> bool {
        self.only.is_empty() || self.only.contains(&section)
    }

    fn sized(mut self) -> Self {
        // A part of the table is not the table.
        self.no_write |= !self.neighbours.is_empty();
        if self.quick {
            self.rounds = 1;
            self.seconds = 3;
            self.devices = 200;
            self.flat_devices = 2_000;
            self.flat_events = 300_000;
            self.series = 50_000;
            self.long_series = 500_000;
            self.list_devices = 2_000;
            self.list_users = 500;
        }
        self
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Echo { threads } => echo::run(threads),
        Command::Run(options) => run(&(*options).sized()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    process::raise_file_limit();
    // One thread: it shares the machine with the server that it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let page = page::Page::open(options);
    tokio::task::LocalSet::new().block_on(&runtime, sections::run(options, &page))
}
