//! Questions to a fleet of a large registry: filters in every order, counts, and devices that are made in bulk.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lists::{Kind, ORDERS, measure_kinds, pages};
use super::{grouped, median, millis, verdict};
use crate::page::Page;
use crate::registry::{self, Registry};
use crate::{Failure, Options};

/// What 99 of 100 answers are to come within: where an index serves the filter; a summary.
const TARGET_INDEXED: Duration = Duration::from_millis(30);
const TARGET_SUMMARY: Duration = Duration::from_millis(20);
/// The stated bounds elsewhere: far pages of what many pass, metadata that is read, a summary of what passes a filter.
const BOUND_FAR: Duration = Duration::from_millis(150);
const BOUND_METADATA: Duration = Duration::from_millis(400);
const BOUND_FILTERED_SUMMARY: Duration = Duration::from_millis(400);
/// Devices of one bulk, and how many of them are made; the one in the middle counts.
const BULK: usize = 10_000;
const BULKS: usize = 3;
const TARGET_BULK: Duration = Duration::from_secs(10);

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let mut registry = registry::fill(options).await?;
    let kinds = kinds(&mut registry).await?;
    let mut table = measure_kinds(options, &registry.api, &kinds).await?;
    let made = bulk(options, &mut registry).await?;
    writeln!(
        table,
        "\nWhole answers over HTTP, `depth=all`, lists of 100 devices in every order, ascending and descending. Few pass: at most one in a hundred; many: half or more. {} devices, {} organizations in a tree of \
         four levels, each with a project; one device in ten was heard and has a place.\n\n`POST /v2/devices/bulk` with {} devices, spread over a hundred organizations: the median of {BULKS} is {}, {} devices/s; < {}: {}.",
        grouped(registry.sizes.devices as f64),
        grouped(registry.sizes.organizations as f64),
        grouped(made.0 as f64),
        millis(made.1),
        grouped(made.0 as f64 / made.1.as_secs_f64()),
        millis(TARGET_BULK),
        verdict(made.1 < TARGET_BULK),
    )?;
    registry.server.stop().await?;
    page.put("fleet", &table)
}

/// Lists with this filter in every order; the paths of first pages and those of later ones.
async fn lists(registry: &Registry, part: &str, filter: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
    let base = format!("/v2/devices?limit=100&depth=all{part}&{filter}");
    let pages = pages(&mut registry.api.again().await?, &base).await?;
    let orders: Vec<String> = ORDERS.iter().flat_map(|order| [format!("%2B{order}"), format!("-{order}")]).collect();
    let paths = |of: &[u64]| -> Vec<String> {
        let path = |order: &String, page: &u64| format!("{base}&sortBy={order}&page={page}");
        orders.iter().flat_map(|order| of.iter().map(move |page| path(order, page))).collect()
    };
    Ok((paths(&pages[..1]), paths(&pages[1..])))
}

async fn kinds(registry: &mut Registry) -> Result<Vec<Kind>, Failure> {
    let first = registry.api.call("GET", "/v2/devices?depth=all&limit=1&page=500&sortBy=createdAt", None).await?;
    let early = first["data"][0]["createdAt"].as_str().ok_or("a device has no createdAt")?.to_owned();
    let project = first["data"][0]["projectUuid"].as_str().ok_or("a device has no project")?.to_owned();
    let few = [
        "filter[name][gte]=pump%20995".to_owned(),
        format!("filter[projectUuid][eq]={project}"),
        format!("filter[createdAt][lt]={early}"),
        "filter[statusInt][gt]=0".to_owned(),
        "filter[updatedAt][lt]=2020-01-01".to_owned(),
        "filter[lastActive][lt]=2020-01-01".to_owned(),
        "filter[meta.serial][eq]=sn-00004242".to_owned(),
    ];
    let many = [
        "filter[name][gte]=pump%205".to_owned(),
        format!("filter[createdAt][gte]={early}"),
        "filter[statusInt][eq]=0".to_owned(),
        "filter[lastActive][eq]=null".to_owned(),
        format!("filter[projectUuid][ne]={project}"),
    ];
    let metadata = ["filter[meta.latitude][gte]=0".to_owned(), "filter[meta.serial][gt]=sn-00050000".to_owned()];
    let parts = [
        ("everything", String::new()),
        ("a tenth", format!("&organizationId={}", registry.region)),
        ("a hundredth", format!("&organizationId={}", registry.site)),
    ];
    let mut kinds = Vec::new();
    let mut add = |name: String, target: Duration, paths: Vec<String>| kinds.push(Kind { name, target, paths });
    for (part, query) in &parts {
        let (mut near, mut far, mut all_few) = (Vec::new(), Vec::new(), Vec::new());
        for filter in &few {
            let (first, later) = lists(registry, query, filter).await?;
            all_few.extend(first.into_iter().chain(later));
        }
        for filter in &many {
            let (first, later) = lists(registry, query, filter).await?;
            near.extend(first);
            far.extend(later);
        }
        add(format!("a column, few pass: {part}"), TARGET_INDEXED, all_few);
        add(format!("a column, many pass, first page: {part}"), TARGET_INDEXED, near);
        add(format!("a column, many pass, middle and last page: {part}"), BOUND_FAR, far);
    }
    for (part, query) in &parts {
        let mut paths = Vec::new();
        for filter in &metadata {
            let (first, later) = lists(registry, query, filter).await?;
            paths.extend(first.into_iter().chain(later).step_by(3));
        }
        add(format!("metadata that is read: {part}"), BOUND_METADATA, paths);
        let summary = format!("/v2/devices/summary?depth=all{query}");
        let filtered = few.iter().chain(&many).chain(&metadata).map(|filter| format!("{summary}&{filter}")).collect();
        add(format!("summary: {part}"), TARGET_SUMMARY, vec![summary]);
        add(format!("summary with a filter: {part}"), BOUND_FILTERED_SUMMARY, filtered);
    }
    kinds.retain(|kind| !kind.paths.is_empty());
    Ok(kinds)
}

/// Makes devices in bulk: how many a call makes, and how long the one in the middle takes.
async fn bulk(options: &Options, registry: &mut Registry) -> Result<(usize, Duration), Failure> {
    let count = if options.quick { BULK / 10 } else { BULK };
    let path = format!("/v2/organizations?depth=all&limit=100&parentId={}", registry.region);
    let organizations = registry.api.call("GET", &path, None).await?;
    let organizations: Vec<Value> = organizations["data"].as_array().cloned().unwrap_or_default();
    let project = registry.api.call("GET", &format!("/v2/devices/{}", registry.device), None).await?;
    let mut durations = Vec::new();
    for round in 0..BULKS {
        let item = |number: usize| {
            json!({"name": format!("valve {round} {number}"), "projectUuid": project["projectUuid"],
                "organizationId": organizations[number % organizations.len()]["id"], "meta": {"serial": format!("v{round}-{number}")}})
        };
        let body = Value::Array((0..count).map(item).collect());
        let begun = Instant::now();
        let outcome = registry.api.call("POST", "/v2/devices/bulk", Some(&body)).await?;
        durations.push(begun.elapsed());
        let made = outcome["data"].as_array().map_or(0, Vec::len);
        if made != count {
            return Err(format!("{made} devices were made, and these not: {}", outcome["errors"]).into());
        }
    }
    Ok((count, median(durations, Duration::as_secs_f64).ok_or("no bulks")?))
}
