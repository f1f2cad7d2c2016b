//! Lists of a large registry: every list, every order, near and far pages, searches; one caller, and a few at once.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use hdrhistogram::Histogram;

use super::{grouped, millis, verdict};
use crate::api::Api;
use crate::page::Page;
use crate::registry::{self, Registry};
use crate::{Failure, Options};

/// How often each list is asked for, in turn with the others.
const REPEATS: usize = 12;
const REPEATS_QUICK: usize = 2;
/// Callers that ask at once.
const CALLERS: usize = 4;
/// Items of a page.
const LIMIT: u64 = 100;
/// What 99 of 100 answers are to come within.
const TARGET: Duration = Duration::from_millis(20);
const TARGET_SEARCH: Duration = Duration::from_millis(60);

/// The orders of the list of devices.
pub(super) const ORDERS: &[&str] = &["name", "description", "createdAt", "updatedAt", "lastActive", "statusInt"];

/// A kind of question and the paths that ask it.
pub(super) struct Kind {
    pub name: String,
    pub target: Duration,
    pub paths: Vec<String>,
}

pub async fn measure(options: &Options, page: &Page) -> Result<(), Failure> {
    let registry = registry::fill(options).await?;
    let kinds = kinds(&registry).await?;
    let mut table = measure_kinds(options, &registry.api, &kinds).await?;
    writeln!(
        table,
        "\nWhole answers of {LIMIT} items over HTTP, `depth=all`: every order, ascending and descending, the first, the middle and the last page; \
         {} times each. {} devices, {} organizations in a tree of four levels, {} users, {} projects.",
        repeats(options),
        grouped(registry.sizes.devices as f64),
        grouped(registry.sizes.organizations as f64),
        grouped(registry.sizes.users as f64),
        grouped(registry.sizes.organizations as f64),
    )?;
    registry.server.stop().await?;
    page.put("lists", &table)
}

fn repeats(options: &Options) -> usize {
    if options.quick { REPEATS_QUICK } else { REPEATS }
}

/// Asks all of these, one caller and a few at once: a table.
pub(super) async fn measure_kinds(options: &Options, api: &Api, kinds: &[Kind]) -> Result<String, Failure> {
    let repeats = repeats(options);
    let mut table = String::from(
        "| list | questions | p50 | p99 | slowest | target | p99, 4 callers at once |\n|---|---:|---:|---:|---:|---|---:|\n",
    );
    for kind in kinds {
        let alone = ask(api, kind, repeats).await?;
        let callers = try_join_all((0..CALLERS).map(|_| ask(api, kind, repeats.div_ceil(2)))).await?;
        let mut together = Histogram::<u64>::new(3)?;
        callers.iter().try_for_each(|asked| together.add(&asked.latency))?;
        let at = |histogram: &Histogram<u64>, quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        let p99 = at(&alone.latency, 0.99);
        if p99 >= kind.target {
            eprintln!("bench: {}: slowest, {}: {}", kind.name, millis(alone.slowest.0), alone.slowest.1);
        }
        writeln!(
            table,
            "| {} | {} | {} | {} | {} | p99 < {}: {} | {} |",
            kind.name,
            kind.paths.len(),
            millis(at(&alone.latency, 0.5)),
            millis(p99),
            millis(alone.slowest.0),
            millis(kind.target),
            verdict(p99 < kind.target),
            millis(at(&together, 0.99)),
        )?;
    }
    Ok(table)
}

/// Every list with its orders, of everything and of a part of the tree.
async fn kinds(registry: &Registry) -> Result<Vec<Kind>, Failure> {
    let (top, part) = (&registry.region, &registry.site);
    let lists: [(&str, &str, &[&str]); 4] = [
        ("devices", "organizationId", ORDERS),
        ("organizations", "parentId", &["name", "description", "createdAt", "updatedAt"]),
        (
            "users",
            "organizationId",
            &["username", "email", "firstName", "lastName", "company", "role", "createdAt", "updatedAt", "lastActive"],
        ),
        ("projects", "organizationId", &["name", "createdAt", "updatedAt"]),
    ];
    let searches: [(&str, &[&str]); 4] = [
        ("devices", &["pump", "pump 4242", "nothing has this", "x"]),
        ("organizations", &["department", "site 7", "nothing has this"]),
        ("users", &["user", "ana 77", "nothing has this"]),
        ("projects", &["design", "design 42", "nothing has this"]),
    ];
    let mut api = registry.api.again().await?;
    let mut kinds = Vec::new();
    for (list, tree, orders) in lists {
        for (place, filter) in [
            ("everything", String::new()),
            ("a tenth", format!("&{tree}={top}")),
            ("a hundredth", format!("&{tree}={part}")),
        ] {
            let base = format!("/v2/{list}?limit={LIMIT}&depth=all{filter}");
            let pages = pages(&mut api, &base).await?;
            let paths = orders.iter().flat_map(|order| [format!("%2B{order}"), format!("-{order}")]);
            let paths = paths.flat_map(|order| pages.iter().map(move |page| format!("&sortBy={order}&page={page}")));
            let paths = paths.map(|query| format!("{base}{query}")).collect();
            kinds.push(Kind { name: format!("{list}: {place}"), target: TARGET, paths });
        }
    }
    for (list, texts) in searches {
        let mut paths = Vec::new();
        for text in texts {
            let base = format!("/v2/{list}?limit={LIMIT}&depth=all&searchText={}", text.replace(' ', "%20"));
            let pages = pages(&mut api, &base).await?;
            paths.extend(pages.iter().map(|page| format!("{base}&page={page}")));
        }
        kinds.push(Kind { name: format!("{list}: search"), target: TARGET_SEARCH, paths });
    }
    for (name, base) in [
        ("notifications", format!("/v2/notifications?limit={LIMIT}")),
        ("notifications: unread", format!("/v2/notifications?limit={LIMIT}&unread=true")),
        ("locations", format!("/v2/devices/locations?limit={LIMIT}&depth=all")),
        ("locations: a tenth", format!("/v2/devices/locations?limit={LIMIT}&depth=all&organizationId={top}")),
        ("settings", format!("/v2/devices/{}/settings?limit={LIMIT}", registry.device)),
    ] {
        let pages = pages(&mut api, &base).await?;
        let paths = pages.iter().map(|page| format!("{base}&page={page}")).collect();
        kinds.push(Kind { name: name.to_owned(), target: TARGET, paths });
    }
    Ok(kinds)
}

/// The first page, the middle one, the last.
pub(super) async fn pages(api: &mut Api, base: &str) -> Result<Vec<u64>, Failure> {
    let answer = api.call("GET", &format!("{base}&page=1"), None).await?;
    let last = answer["meta"]["totalPages"].as_u64().ok_or("the answer is no list")?.max(1);
    let mut pages = vec![1, last.div_ceil(2), last];
    pages.dedup();
    Ok(pages)
}

struct Asked {
    latency: Histogram<u64>,
    slowest: (Duration, String),
}

/// One caller asks all of it, again and again.
async fn ask(api: &Api, kind: &Kind, repeats: usize) -> Result<Asked, Failure> {
    let mut api = api.again().await?;
    let mut asked = Asked { latency: Histogram::new(3)?, slowest: (Duration::ZERO, String::new()) };
    for path in (0..repeats).flat_map(|_| &kind.paths) {
        let begun = Instant::now();
        api.reply("GET", path, None).await?;
        let took = begun.elapsed();
        asked.latency.record(u64::try_from(took.as_micros())?)?;
        if took > asked.slowest.0 {
            asked.slowest = (took, path.clone());
        }
    }
    Ok(asked)
}
