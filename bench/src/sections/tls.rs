//! The main road over HTTPS beside plain HTTP: the same program and data folder, started anew for each round.

use std::fmt::Write as _;

use super::{House, Measured, grouped, median, millis, shot, turns};
use crate::page::Page;
use crate::process::Server;
use crate::setup::{EVENTS, payload};
use crate::wrk::{Ammunition, Round};
use crate::{Failure, Options};

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let house = House::build(options).await?;
    let posts = Ammunition::posts(&house.devices(options.devices).await?, payload)?;
    let House { server, folder, .. } = house;
    server.stop().await?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = tempfile::tempdir()?;
    let path = |name: &str| certificate.path().join(name).to_string_lossy().into_owned();
    let (chain, key) = (path("chain.pem"), path("key.pem"));
    std::fs::write(&chain, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let encrypted = [("HTTP__TLS_CERTIFICATE", chain.as_str()), ("HTTP__TLS_KEY", key.as_str())];
    let ways: [&[(&str, &str)]; 2] = [&[], &encrypted];
    let mut table = String::from(
        "| connections | HTTP, events/s | HTTPS | ratio | µs an event, HTTP | HTTPS | ratio | p99, HTTP | HTTPS |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for &connections in &options.connections {
        let mut rounds = [Vec::new(), Vec::new()];
        for (seconds, counts) in turns(options) {
            for (settings, rounds) in ways.into_iter().zip(&mut rounds) {
                let server = Server::isobar_with(&options.isobar, folder.path(), options.threads(), settings).await?;
                let before = server.processor_time()?;
                let round = posts.fire(&shot(options, &server, EVENTS, connections, seconds)).await?;
                let spent = server.processor_time()?.saturating_sub(before);
                server.stop().await?;
                if counts {
                    rounds
                        .push(Measured { round, micros: spent.as_secs_f64() * 1e6 / (round.answers as f64).max(1.0) });
                }
            }
        }
        write_row(&mut table, connections, &rounds)?;
    }
    writeln!(
        table,
        "\nMedians of {} alternating rounds of {} s, of which the handshakes of all connections are a part; TLS 1.3, {} devices.",
        options.rounds,
        options.seconds,
        grouped(options.devices as f64)
    )?;
    page.put("tls", &table)
}

fn write_row(table: &mut String, connections: usize, rounds: &[Vec<Measured>; 2]) -> Result<(), Failure> {
    let of = |key: fn(&Round) -> f64| {
        rounds.each_ref().map(|rounds| median(rounds.iter().map(|measured| measured.round).collect(), key))
    };
    let ([Some(plain), Some(tls)], costs) = (
        of(|round| round.rate),
        rounds
            .each_ref()
            .map(|rounds| median(rounds.iter().map(|measured| measured.micros).collect(), |micros| *micros)),
    ) else {
        return Err("no rounds".into());
    };
    let [plain_cost, tls_cost] = costs.map(Option::unwrap_or_default);
    writeln!(
        table,
        "| {} | {} | {} | {:.2} | {plain_cost:.2} | {tls_cost:.2} | {:.2} | {} | {} |",
        grouped(connections as f64),
        grouped(plain.rate),
        grouped(tls.rate),
        tls.rate / plain.rate,
        tls_cost / plain_cost,
        millis(plain.p99),
        millis(tls.p99),
    )?;
    Ok(())
}
