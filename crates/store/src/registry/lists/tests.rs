//! Snapshots the statements of every list in every order, and their plans in each dialect. Rows that are read along an
//! index are read in its order, without a sort.

use std::fmt::Write as _;

use isobar_model::access::Lineage;
use isobar_model::page::SortKey;
use isobar_model::time::Timestamp;
use uuid::Uuid;

use super::device_filters::{Lookup, ReadyFilters};
use super::listings::{ALARMS, DEVICES};
use super::*;
use crate::registry::Registry;
use crate::registry::sql::run;
use crate::registry::support::OwnDatabase;
use crate::telemetry::{Operand, Operator};

/// Extent of a list that is half of its table, with (next constant) its second page.
const EXTENT: Extent = Extent { within: 500, everywhere: 1_000 };
const PAGE: PageRequest = PageRequest::new(2, 100);

/// Settings that keep PostgreSQL's planner from sorting: without rows it would sort rather than read an index.
const ALONG_INDEXES: [&str; 6] = [
    "SET LOCAL enable_seqscan = off",
    "SET LOCAL enable_bitmapscan = off",
    "SET LOCAL enable_sort = off",
    "SET LOCAL enable_incremental_sort = off",
    "SET LOCAL enable_hashjoin = off",
    "SET LOCAL enable_mergejoin = off",
];

fn scope() -> Scope {
    Scope::Beneath { base: Lineage::new([], OrganizationId(Uuid::from_u128(1))), levels: None }
}

/// Way to find a page: its name, and its statement.
type Way = (&'static str, Sql);

/// Returns the way of a list along an index.
fn along(listing: &Listing, dialect: Dialect, request: &ListRequest, order: &Order) -> Option<Way> {
    let (window, index) = (PageWindow::of(PAGE, EXTENT.within).unwrap(), alarms::indexed_in(request, order)?);
    let from = listing.along(dialect, index, &EXTENT, &scope());
    Some(("along an index", window.statement(dialect, index, from, order)))
}

/// Returns the way of a page that follows an item.
fn following(listing: &Listing, dialect: Dialect, request: &ListRequest, order: &Order) -> Option<Way> {
    let page = PageRequest { after: Some(Uuid::from_u128(2)), ..PAGE };
    let index = order.indexed_in().filter(|_| request.is_by_creation())?;
    let from = listing.along(dialect, index, &EXTENT, &scope());
    Some(("after an item", PageWindow::of(page, EXTENT.within)?.statement(dialect, index, from, order)))
}

/// Returns the way of a search in the list of devices along an index.
fn searched_along(dialect: Dialect, order: &Order) -> Option<Way> {
    let (window, index) = (PageWindow::of(PAGE, EXTENT.within).unwrap(), order.indexed_in()?);
    let from = devices::searched_along(index, found(dialect, "s.search", "pump"));
    Some(("searched along an index", window.statement(dialect, index, from, order)))
}

/// Returns the ways that sort at the end.
fn sorting(name: &str, listing: &Listing, dialect: Dialect, order: &Order) -> Vec<Way> {
    let (window, request) = (PageWindow::of(PAGE, EXTENT.within).unwrap(), ListRequest::default());
    let gathered = |condition| listing.gathered(dialect, condition, &request);
    let ways = match name {
        "devices" => vec![
            ("gathered", devices::gathered(dialect, Some(order), &scope(), None)),
            ("searched and gathered", devices::gathered(dialect, Some(order), &scope(), Some("pump"))),
            ("searched", devices::searched(found(dialect, "s.search", "pump"))),
        ],
        "setting_history" => {
            let condition = Sql::new("s.device_key = ? AND s.changed_at >= ?").bind(1_u64).bind(0_u64);
            vec![("gathered", gathered(condition))]
        }
        "alarms" => vec![("gathered", alarms::gathered(dialect, &scope(), &[], Some(order)))],
        "api_keys" => vec![("gathered", gathered(Sql::new("k.user_id = ?").bind("u")))],
        _ => vec![("gathered", gathered(within(&scope())))],
    };
    ways.into_iter().map(|(way, from)| (way, window.statement(dialect, listing.relation, from, order))).collect()
}

/// Returns an order by each field in either direction, one by two fields, and the default of alarms.
fn orders(name: &str, listing: &Listing) -> Vec<Vec<SortKey>> {
    let key = |name: &str, descending| SortKey { field: name.to_owned(), descending };
    let single = listing.fields.iter().flat_map(|field| [false, true].map(|descends| vec![key(field.name, descends)]));
    let mut orders: Vec<_> = single.collect();
    if let [first, second, ..] = listing.fields {
        orders.push(vec![key(second.name, true), key(first.name, false)]);
    }
    if name == "alarms" {
        orders.push(alarms::in_default_order(&ListRequest::default()).sort);
    }
    orders
}

/// Returns the plan of a statement.
async fn plan(connection: &impl Connection, statement: Sql) -> Vec<String> {
    let (explain, column) = match Dialect::of(connection) {
        Dialect::Sqlite => ("EXPLAIN QUERY PLAN ", "detail"),
        Dialect::Postgres => ("EXPLAIN (COSTS OFF) ", "QUERY PLAN"),
    };
    let rows = all(connection, Sql::new(explain).then(statement)).await.unwrap();
    rows.iter().map(|row| row.text(column).unwrap()).collect()
}

/// Returns the scans of a PostgreSQL plan, in order: other parts of a plan's text differ between versions.
fn scans(plan: &[String]) -> Vec<String> {
    let scans = plan.iter().filter(|line| line.contains(" Scan "));
    scans.map(|line| line.trim_start_matches([' ', '-', '>']).to_owned()).collect()
}

/// Appends a statement and its plan.
fn write_way(into: &mut String, order: &[SortKey], (way, statement): &Way, plan: &[String]) {
    let order: Vec<_> =
        order.iter().map(|key| format!("{}{}", if key.descending { "-" } else { "" }, key.field)).collect();
    writeln!(into, "{}, {way}\n    {}", order.join(","), statement.written()).unwrap();
    plan.iter().for_each(|line| writeln!(into, "      | {line}").unwrap());
}

async fn hold_statements(registry: &Registry, dialect: &str) {
    let tx = registry.db.begin().await.unwrap();
    let is_postgres = Dialect::of(&tx) == Dialect::Postgres;
    for setting in ALONG_INDEXES.iter().filter(|_| is_postgres) {
        run(&tx, Sql::new(*setting)).await.unwrap();
    }
    for (name, listing) in [
        ("alarms", &ALARMS),
        ("api_keys", &API_KEYS),
        ("devices", &DEVICES),
        ("organizations", &ORGANIZATIONS),
        ("projects", &PROJECTS),
        ("setting_history", &SETTING_HISTORY),
        ("users", &USERS),
    ] {
        let mut statements = String::new();
        for sort in orders(name, listing) {
            let request = ListRequest { sort, ..ListRequest::default() };
            let (order, dialect) = (listing.order(&request).unwrap(), Dialect::of(&tx));
            let searched = (name == "devices").then(|| searched_along(dialect, &order)).flatten();
            let following = following(listing, dialect, &request, &order);
            for way in along(listing, dialect, &request, &order).into_iter().chain(searched).chain(following) {
                let plan = plan(&tx, way.1.clone()).await;
                let is_sorted = plan.iter().any(|line| line.contains("FOR ORDER BY") || line.contains("Sort"));
                assert!(!is_sorted, "{}: {plan:?}", way.1.written());
                let plan = if is_postgres { scans(&plan) } else { plan };
                write_way(&mut statements, &request.sort, &way, &plan);
            }
            for way in sorting(name, listing, dialect, &order) {
                // PostgreSQL plans these by the rows it has, and here it has none.
                let plan = if is_postgres { Vec::new() } else { plan(&tx, way.1.clone()).await };
                write_way(&mut statements, &request.sort, &way, &plan);
            }
        }
        insta::assert_snapshot!(format!("{name}_{dialect}"), statements);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_follow_indexes_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open(&format!("sqlite:{}", folder.path().join("registry.db").display())).await.unwrap();
    hold_statements(&registry, "sqlite").await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_follow_indexes_on_postgres() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    hold_statements(&registry, "postgres").await;
    registry.close().await.unwrap();
    database.remove().await;
}

/// Returns filters on each kind of column, with their names.
fn filters() -> Vec<(&'static str, DeviceFilter)> {
    let time = || Operand::Time(Timestamp::from_millis(1_000));
    let filter = |field, operator, operands: Vec<Operand>| DeviceFilter { field, operator, operands };
    let text = |text: &str| Operand::Text(text.to_owned());
    vec![
        ("name eq", filter(DeviceField::Name, Operator::Eq, vec![text("pump")])),
        ("name gte", filter(DeviceField::Name, Operator::Gte, vec![text("pump")])),
        ("statusInt eq", filter(DeviceField::Status, Operator::Eq, vec![Operand::Number("3".to_owned())])),
        ("projectUuid in", filter(DeviceField::Project, Operator::In, vec![text("p"), text("q")])),
        ("createdAt lt", filter(DeviceField::CreatedAt, Operator::Lt, vec![time()])),
        ("updatedAt gte", filter(DeviceField::UpdatedAt, Operator::Gte, vec![time()])),
        ("lastActive gte", filter(DeviceField::LastActive, Operator::Gte, vec![time()])),
        ("lastActive eq null", filter(DeviceField::LastActive, Operator::Eq, vec![Operand::Null])),
        ("meta.site eq", filter(DeviceField::Meta(vec!["site".to_owned()]), Operator::Eq, vec![text("east")])),
    ]
}

/// Way with filters that are looked up in sets.
const IN_SETS: &str = "createdAt, along an index, in sets";

/// Returns true if a line of a plan reads only indexes of devices.
fn reads_no_rows(line: &str) -> bool {
    !line.contains(" d ") && !line.contains(" a ") || line.contains("COVERING")
}

/// Snapshots the statements of filters: the count, and a page along an index or collected; in a large part and in a
/// small one.
async fn hold_filter_statements(registry: &Registry, dialect: &str) {
    let tx = registry.db.begin().await.unwrap();
    let is_postgres = Dialect::of(&tx) == Dialect::Postgres;
    let (mut statements, window) = (String::new(), PageWindow::of(PAGE, EXTENT.within).unwrap());
    for (name, filter) in filters() {
        let selection = DeviceSelection { filters: vec![filter], ..DeviceSelection::default() };
        let filters = ReadyFilters::of(&tx, &scope(), &selection).await.unwrap();
        for (size, extent) in [("large", EXTENT), ("small", Extent { within: 10, everywhere: 1_000 })] {
            let passing = selected_devices::counted(&filters, &scope(), &extent);
            let mut ways = vec![("count", Sql::new("SELECT count(*) AS total").then(passing))];
            let sort = vec![SortKey { field: "createdAt".to_owned(), descending: false }];
            let order = DEVICES.order(&ListRequest { sort, ..ListRequest::default() }).unwrap();
            let index = order.indexed_in().unwrap();
            let column = order.first_column();
            for (way, lookup) in [
                ("createdAt, along an index", Lookup::Along(column)),
                (IN_SETS, Lookup::InSets { order: column, key: "d.key" }),
            ] {
                let along = selected_devices::along(&filters, &scope(), &extent, index, lookup);
                ways.push((way, window.statement(filters.dialect, index, along, &order)));
            }
            let lookup = selected_devices::lookup_in(&extent);
            let gathered = selected_devices::gathered(&filters, &scope(), &extent, Some(&order), lookup);
            let sorted = order.sorted_at_the_end();
            let gathered = window.statement(filters.dialect, DEVICES.relation, gathered, &sorted);
            ways.push(("createdAt, gathered", gathered));
            for (way, statement) in ways {
                let plan = if is_postgres { Vec::new() } else { plan(&tx, statement.clone()).await };
                let is_sorted = plan.iter().any(|line| line.contains("FOR ORDER BY"));
                assert!(!is_sorted || way.ends_with("gathered"), "{name}, {way}: {plan:?}");
                assert!(way != IN_SETS || plan.iter().all(|line| reads_no_rows(line)), "{name}: {plan:?}");
                writeln!(statements, "{name}, {size}, {way}\n    {}", statement.written()).unwrap();
                plan.iter().for_each(|line| writeln!(statements, "      | {line}").unwrap());
            }
        }
    }
    insta::assert_snapshot!(format!("device_filters_{dialect}"), statements);
    let mut statements = String::new();
    for (name, is_everything) in [("everything", true), ("a part", false)] {
        let statement = device_summary::ranges(&scope(), is_everything, &device_summary::Ages::before(at_a_day()), 0);
        let plan = if is_postgres { Vec::new() } else { plan(&tx, statement.clone()).await };
        assert!(plan.iter().all(|line| reads_no_rows(line)), "{plan:?}");
        writeln!(statements, "{name}\n    {}", statement.written()).unwrap();
        plan.iter().for_each(|line| writeln!(statements, "      | {line}").unwrap());
    }
    insta::assert_snapshot!(format!("device_summary_{dialect}"), statements);
}

fn at_a_day() -> Timestamp {
    Timestamp::from_millis(1_000_000_000_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_find_few_along_indexes_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open(&format!("sqlite:{}", folder.path().join("registry.db").display())).await.unwrap();
    hold_filter_statements(&registry, "sqlite").await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_written_alike_on_postgres() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    hold_filter_statements(&registry, "postgres").await;
    registry.close().await.unwrap();
    database.remove().await;
}

/// Returns filters of alarms, with true if indexes cover all their columns.
fn alarm_filters() -> Vec<(&'static str, bool, AlarmFilter)> {
    let filter = |field, operator, operands: Vec<Operand>| AlarmFilter { field, operator, operands };
    let text = |text: &str| Operand::Text(text.to_owned());
    let number = |number: &str| Operand::Number(number.to_owned());
    let time = Operand::Time(Timestamp::from_millis(1_000));
    vec![
        ("state eq", true, filter(AlarmField::State, Operator::Eq, vec![number("0")])),
        ("severity in", true, filter(AlarmField::Severity, Operator::In, vec![number("1"), number("2")])),
        ("acknowledged eq", true, filter(AlarmField::Acknowledged, Operator::Eq, vec![Operand::Bool(false)])),
        ("raisedAt gte", true, filter(AlarmField::RaisedAt, Operator::Gte, vec![time])),
        ("projectId eq", true, filter(AlarmField::Project, Operator::Eq, vec![text("p")])),
        ("deviceId eq", false, filter(AlarmField::Device, Operator::Eq, vec![text("d")])),
        ("elementName eq", false, filter(AlarmField::Element, Operator::Eq, vec![text("warm")])),
    ]
}

/// Snapshots the statements of the list of alarms with filters: the count, and a page along the index of either order
/// or collected.
async fn hold_alarm_statements(registry: &Registry, dialect: &str) {
    let tx = registry.db.begin().await.unwrap();
    let is_postgres = Dialect::of(&tx) == Dialect::Postgres;
    let (mut statements, window) = (String::new(), PageWindow::of(PAGE, EXTENT.within).unwrap());
    let newest = vec![SortKey { field: "raisedAt".to_owned(), descending: true }];
    for (name, is_covered, filter) in alarm_filters() {
        let (filters, dialect) = ([filter], Dialect::of(&tx));
        let passing = alarms::gathered(dialect, &scope(), &filters, None);
        let mut ways = vec![("count", Sql::new("SELECT count(*) AS total").then(passing))];
        for (way, sort) in
            [("default order, along an index", Vec::new()), ("-raisedAt, along an index", newest.clone())]
        {
            let request = alarms::in_default_order(&ListRequest { sort, ..ListRequest::default() });
            let order = ALARMS.order(&request).unwrap();
            let along = ALARMS.along(dialect, ALARMS.relation, &EXTENT, &scope()).text(" AND ");
            let along = along.then(alarms::AlarmWay::Along(&order).condition(dialect, &filters));
            ways.push((way, window.statement(dialect, ALARMS.relation, along, &order)));
        }
        let order = ALARMS.order(&alarms::in_default_order(&ListRequest::default())).unwrap();
        let gathered = alarms::gathered(dialect, &scope(), &filters, Some(&order));
        let gathered = window.statement(dialect, ALARMS.relation, gathered, &order.sorted_at_the_end());
        ways.push(("default order, gathered", gathered));
        for (way, statement) in ways {
            let plan = if is_postgres { Vec::new() } else { plan(&tx, statement.clone()).await };
            if way.ends_with("along an index") {
                assert!(!plan.iter().any(|line| line.contains("FOR ORDER BY")), "{name}, {way}: {plan:?}");
                assert!(!is_covered || plan.iter().all(|line| reads_no_rows(line)), "{name}, {way}: {plan:?}");
            }
            writeln!(statements, "{name}, {way}\n    {}", statement.written()).unwrap();
            plan.iter().for_each(|line| writeln!(statements, "      | {line}").unwrap());
        }
    }
    insta::assert_snapshot!(format!("alarm_filters_{dialect}"), statements);
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_found_along_indexes_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open(&format!("sqlite:{}", folder.path().join("registry.db").display())).await.unwrap();
    hold_alarm_statements(&registry, "sqlite").await;
    registry.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn alarm_filters_are_written_alike_on_postgres() {
    let database = OwnDatabase::new().await;
    let registry = Registry::open(&database.address).await.unwrap();
    hold_alarm_statements(&registry, "postgres").await;
    registry.close().await.unwrap();
    database.remove().await;
}
