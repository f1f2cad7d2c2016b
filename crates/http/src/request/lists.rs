//! Query parameters of lists: order, columns and filters (specification: Shared query parameters).

use isobar_hub::{AlarmFilter, DeviceFilter, ValueQuery};
use isobar_model::ids::DeviceId;
use isobar_model::page::{ListRequest, PageRequest, SortKey};
use uuid::Uuid;

use super::alarm_fields;
use super::columns::CsvColumn;
use super::device_fields::{self, DeviceColumn};
use super::filter;
use super::query::{Query, excerpt};

/// Most sort keys.
pub(crate) const SORT_KEYS_MAX: usize = 16;
/// Most columns of a CSV.
pub(crate) const CSV_COLUMNS_MAX: usize = 100;

impl Query<'_> {
    /// Reads `page`, `limit`, `searchText`, `entityList` and `sortBy`, for these fields.
    pub fn list(&mut self, fields: &[&str]) -> ListRequest {
        let page = self.page();
        ListRequest { page, ..self.whole_list(fields) }
    }

    /// Reads the parameters of a list whose pages may follow an item, by `after` instead of `page`.
    pub fn list_with_after(&mut self, fields: &[&str]) -> ListRequest {
        let mut list = self.list(fields);
        list.page.after = self.id::<DeviceId>("after").map(Uuid::from);
        if self.get("after").is_some() {
            if self.get("page").is_some() {
                self.fault("after", "does not go with page");
            }
            if !list.is_by_creation() {
                self.fault("after", "needs sortBy=createdAt or sortBy=-createdAt, and no other key");
            }
        }
        list
    }

    /// Reads the parameters of an export, which ignores those of pages.
    pub fn whole_list(&mut self, fields: &[&str]) -> ListRequest {
        let named = |name: &str| fields.contains(&name).then(|| name.to_owned());
        let sort = self.order(&format!("one of {}", fields.join(", ")), named);
        let ids = self.get("entityList").is_some();
        ListRequest {
            page: PageRequest::default(),
            search: self.text("searchText"),
            sort: sort.into_iter().map(|(field, descending)| SortKey { field, descending }).collect(),
            ids: ids.then(|| self.values("entityList").filter(|id| !id.is_empty()).map(str::to_owned).collect()),
        }
    }

    /// Reads the parameters of a list of stored values; an export is not `paged` and ignores those of pages.
    pub fn values_list(&mut self, paged: bool) -> ValueQuery {
        let sort = self.order("createdAt, id, payload or a path beneath payload", filter::field);
        let (filters, found) = filter::filters(&self.pairs);
        self.faults.extend(found);
        ValueQuery {
            page: if paged { self.page() } else { PageRequest::default() },
            range: self.range(),
            sort: sort.into_iter().map(|(field, descending)| isobar_hub::ValueSort { field, descending }).collect(),
            filters,
            // The caller does not decide on retention.
            ..ValueQuery::default()
        }
    }

    /// Reads `columns` of a CSV of stored values, or returns the default ones.
    pub fn columns(&mut self) -> Vec<CsvColumn> {
        let what = "createdAt, id, payload or a path beneath payload";
        let column = |name: &str| filter::field(name).map(|field| CsvColumn::new(name, field));
        self.columns_of(what, column).unwrap_or_else(CsvColumn::usual)
    }

    /// Reads `columns` of a CSV of devices, or returns the default ones.
    pub fn device_columns(&mut self) -> Vec<DeviceColumn> {
        let names: Vec<_> = DeviceColumn::names().collect();
        let what = format!("{} or a path beneath meta", names.join(", "));
        self.columns_of(&what, DeviceColumn::named).unwrap_or_else(DeviceColumn::usual)
    }

    /// Reads `columns`; `None` if none are named.
    fn columns_of<T>(&mut self, what: &str, column: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        let names: Vec<String> = self
            .paths("columns")
            .filter(|name| !name.is_empty())
            .take(CSV_COLUMNS_MAX + 1)
            .map(str::to_owned)
            .collect();
        if names.len() > CSV_COLUMNS_MAX {
            self.fault("columns", format!("must be at most {CSV_COLUMNS_MAX}"));
        }
        let mut columns = Vec::with_capacity(names.len());
        for name in &names {
            match column(name) {
                Some(column) => columns.push(column),
                None => self.fault("columns", format!("must be {what}, not '{}'", excerpt(name))),
            }
        }
        (!names.is_empty()).then_some(columns)
    }

    /// Reads filters of devices.
    pub fn device_filters(&mut self) -> Vec<DeviceFilter> {
        let (filters, found) = filter::filters_of(&device_fields::DEVICES, &self.pairs);
        self.faults.extend(found);
        filters
    }

    /// Reads filters of alarms.
    pub fn alarm_filters(&mut self) -> Vec<AlarmFilter> {
        let (filters, found) = filter::filters_of(&alarm_fields::ALARMS, &self.pairs);
        self.faults.extend(found);
        filters
    }

    /// Reads `filter[<field>]=<value>` without an operator, for the project list. Any other filter is a fault, as
    /// ignoring it would return more than the caller requested.
    pub fn plain_filter(&mut self, field: &str) -> Option<String> {
        let name = format!("filter[{field}]");
        let is_other = |key: &str| (key == "filter" || key.starts_with("filter[")) && key != name;
        let others =
            self.pairs.iter().filter(|(key, _)| is_other(key)).map(|(key, _)| excerpt(key)).collect::<Vec<_>>();
        for other in others {
            self.fault(&other, format!("is not known: {name}"));
        }
        self.text(&name)
    }

    /// Reads the keys of `sortBy`, mapped by `field`, with true for a descending one.
    fn order<T>(&mut self, what: &str, field: impl Fn(&str) -> Option<T>) -> Vec<(T, bool)> {
        let texts: Vec<String> = self.paths("sortBy").map(str::to_owned).collect();
        if texts.len() > SORT_KEYS_MAX {
            self.fault("sortBy", format!("must have at most {SORT_KEYS_MAX} keys"));
            return Vec::new();
        }
        let mut keys = Vec::with_capacity(texts.len());
        for text in &texts {
            let (name, descending) = match text.strip_prefix('-') {
                Some(name) => (name, true),
                // An unescaped `+` arrives as a space.
                None => (text.strip_prefix(['+', ' ']).unwrap_or(text), false),
            };
            match field(name) {
                Some(field) => keys.push((field, descending)),
                None => self.fault("sortBy", format!("must be {what}, not '{}'", excerpt(name))),
            }
        }
        keys
    }
}
