//! Pages, sorting and depth of lists (specification: Pagination envelope, shared query parameters).

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::time::Timestamp;

/// Most items of one page.
pub const LIMIT_MAX: u32 = 10_000;
/// Items of a page by default.
pub const LIMIT_DEFAULT: u32 = 100;

/// A request for a page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Number of the page, from 1.
    pub page: u64,
    /// Items per page: 1 to [`LIMIT_MAX`].
    pub limit: u32,
    /// The item that the page follows, whatever its number.
    pub after: Option<Uuid>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self::new(1, LIMIT_DEFAULT)
    }
}

impl PageRequest {
    /// Makes a request for the page of this number.
    pub const fn new(page: u64, limit: u32) -> Self {
        Self { page, limit, after: None }
    }

    /// Returns the number of items before the page.
    pub fn offset(&self) -> u64 {
        self.page.saturating_sub(1).saturating_mul(u64::from(self.limit))
    }
}

/// A page of a list, with the length of the whole list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Items in the whole list.
    pub total: u64,
    /// The request that it answers.
    pub request: PageRequest,
    /// The item after which the next page begins, if there is one; `None` in lists whose pages have numbers alone.
    pub next: Option<Option<Uuid>>,
}

impl<T> Page<T> {
    /// Makes a page of a list of `total` items.
    pub fn new(items: Vec<T>, total: u64, request: PageRequest) -> Self {
        Self { items, total, request, next: None }
    }

    /// Cuts a page out of a complete list.
    pub fn of(list: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>, request: PageRequest) -> Self {
        let list = list.into_iter();
        let total = list.len() as u64;
        let skip = usize::try_from(request.offset()).unwrap_or(usize::MAX);
        Self { items: list.skip(skip).take(request.limit as usize).collect(), total, request, next: None }
    }

    /// Converts the items of the page.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        let Self { items, total, request, next } = self;
        Page { items: items.into_iter().map(change).collect(), total, request, next }
    }

    /// Returns its `meta`.
    pub fn meta(&self) -> Meta {
        let limit = u64::from(self.request.limit.max(1));
        let pages = self.total.div_ceil(limit);
        Meta {
            total_docs: self.total,
            page: self.request.page,
            limit: self.request.limit,
            has_prev_page: self.request.page > 1 || self.request.after.is_some(),
            has_next_page: match self.next {
                Some(next) if self.request.after.is_some() => next.is_some(),
                _ => self.request.page < pages,
            },
            total_pages: pages,
            after: self.next,
        }
    }
}

/// `meta` of the pagination envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Items in the whole list.
    pub total_docs: u64,
    /// This page, from 1; 1 if it was requested by `after`.
    pub page: u64,
    /// Items per page.
    pub limit: u32,
    /// True if a page comes before it.
    pub has_prev_page: bool,
    /// True if a page comes after it.
    pub has_next_page: bool,
    /// Number of pages.
    pub total_pages: u64,
    /// The item to name as `after` for the next page, null at the end of the list. Only in lists that take `after`, in
    /// the order of createdAt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid", required = false)]
    pub after: Option<Option<Uuid>>,
}

/// One key of a sort order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The field: its name in the API, or a dotted path beneath `payload`.
    pub field: String,
    /// True for descending order.
    pub descending: bool,
}

/// A half-open interval of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Inclusive start.
    pub from: Option<Timestamp>,
    /// Exclusive end.
    pub to: Option<Timestamp>,
}

/// A request for a list of registry nouns, without its place in the tree.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// The page.
    pub page: PageRequest,
    /// Case-insensitive substring of the noun's searched fields.
    pub search: Option<String>,
    /// The order; ties are broken by id, in the direction of the last key. Fields were checked against the noun's list.
    pub sort: Vec<SortKey>,
    /// Restricts the list to these ids.
    pub ids: Option<Vec<String>>,
}

impl ListRequest {
    /// Returns true if the list is sorted by creation alone: it then has pages that follow an item, because no change
    /// moves an item from one to another.
    pub fn is_by_creation(&self) -> bool {
        matches!(self.sort.as_slice(), [key] if key.field == "createdAt")
    }
}

/// Depth of a list in the organization tree (contract: Conventions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Number of generations; 1 is the base organization alone.
    Levels(u32),
    /// The whole subtree.
    All,
}

impl Default for Depth {
    fn default() -> Self {
        Self::Levels(1)
    }
}

impl Depth {
    /// Returns the number of generations, or `None` for all.
    pub fn levels(self) -> Option<u32> {
        match self {
            Self::Levels(levels) => Some(levels),
            Self::All => None,
        }
    }
}
