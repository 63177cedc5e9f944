//! Bounded lists: offset pagination by page number, and keyset pagination by cursor.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

/// A request for a numbered page. `page` is at least 1 and `limit` between 1 and the list's maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageQuery {
    page: i64,
    limit: i64,
}

impl PageQuery {
    /// Clamps the requested values to the bounds.
    pub fn new(page: Option<i64>, limit: Option<i64>, default: i64, max: i64) -> Self {
        Self {
            page: page.unwrap_or(1).max(1),
            limit: limit.unwrap_or(default).clamp(1, max),
        }
    }

    /// The page number, counted from 1.
    pub fn page(self) -> i64 {
        self.page
    }

    /// The number of items per page.
    pub fn limit(self) -> i64 {
        self.limit
    }

    /// The number of items before the page. It saturates, so that a huge page number gives an empty page, not an
    /// overflow.
    pub fn offset(self) -> i64 {
        (self.page - 1).saturating_mul(self.limit)
    }
}

/// One numbered page and the exact total.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The items, in the order of the list.
    pub data: Vec<T>,
    /// The exact number of items in the whole list.
    pub total: i64,
    /// The page number, counted from 1.
    pub page: i64,
    /// The number of pages of this size.
    #[serde(rename = "totalPages")]
    pub total_pages: i64,
    /// The number of items per page. Some lists publish it.
    #[serde(skip)]
    pub limit: i64,
}

impl<T> Page<T> {
    /// Builds the page for a query.
    pub fn new(query: PageQuery, data: Vec<T>, total: i64) -> Self {
        let limit = query.limit();
        let total_pages = total.saturating_add(limit - 1) / limit;
        Self {
            data,
            total,
            page: query.page(),
            total_pages,
            limit,
        }
    }
}

impl<T> Page<T> {
    /// Maps the items of the page.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page {
            data: self.data.into_iter().map(f).collect(),
            total: self.total,
            page: self.page,
            total_pages: self.total_pages,
            limit: self.limit,
        }
    }
}

/// Keyset pagination: a request for the items after a cursor. In most lists the cursor is the id of the last item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorQuery<C = Uuid> {
    /// The `next_cursor` of the previous page. `None` requests the first page.
    pub cursor: Option<C>,
    pub limit: i64,
}

/// A cursor in a list that is sorted by time and id. Its text is opaque, so that clients do not construct it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCursor {
    pub at: OffsetDateTime,
    pub id: Uuid,
}

impl TimeCursor {
    /// A cursor after every item: the start of a list that is sorted newest first.
    pub const LAST: Self = Self {
        at: datetime!(9999-12-31 23:59:59 UTC),
        id: Uuid::max(),
    };

    /// The earliest accepted time. The database's calendar does not reach further back.
    const FIRST: OffsetDateTime = datetime!(0001-01-01 00:00 UTC);
}

impl fmt::Display for TimeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = self.at.unix_timestamp_nanos() / 1000;
        f.write_str(&hex::encode(format!("{microseconds} {}", self.id)))
    }
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCursor;

impl FromStr for TimeCursor {
    type Err = InvalidCursor;

    fn from_str(cursor: &str) -> Result<Self, InvalidCursor> {
        let parse = || {
            let text = String::from_utf8(hex::decode(cursor).ok()?).ok()?;
            let (microseconds, id) = text.split_once(' ')?;
            let nanoseconds = microseconds.parse::<i128>().ok()?.checked_mul(1000)?;
            let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?;
            let id = id.parse().ok()?;
            (at >= Self::FIRST).then_some(Self { at, id })
        };
        parse().ok_or(InvalidCursor)
    }
}

/// A page of items with the cursor of the next page.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "{T}Slice")]
pub struct CursorPage<T> {
    /// The items, in the order of the list.
    pub data: Vec<T>,
    /// The `cursor` of the next page; null at the end of the list.
    #[schemars(example = &"0190a1b2-c3d4-7e5f-8a9b-000037386ae0")]
    #[serde(rename = "nextCursor")]
    pub next_cursor: Option<String>,
    /// Whether more items follow.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
}

impl<T> CursorPage<T> {
    /// Builds a page from `limit + 1` rows. The extra row only indicates that more items follow.
    pub fn cut<C: fmt::Display>(mut rows: Vec<T>, limit: i64, cursor: impl Fn(&T) -> C) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| has_more);
        let next_cursor = last.map(|row| cursor(row).to_string());
        Self {
            data: rows,
            next_cursor,
            has_more,
        }
    }

    /// Builds a page that ends before the next items were looked for. It may be empty.
    pub fn partial(data: Vec<T>, cursor: impl fmt::Display) -> Self {
        Self {
            data,
            next_cursor: Some(cursor.to_string()),
            has_more: true,
        }
    }

    /// Maps the items of the page.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> CursorPage<U> {
        CursorPage {
            data: self.data.into_iter().map(f).collect(),
            next_cursor: self.next_cursor,
            has_more: self.has_more,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn page_query_clamps_and_never_overflows() {
        let query = PageQuery::new(Some(-4), Some(0), 20, 100);
        assert_eq!((query.page(), query.limit(), query.offset()), (1, 1, 0));
        let query = PageQuery::new(Some(i64::MAX), Some(1000), 20, 100);
        assert_eq!((query.limit(), query.offset()), (100, i64::MAX));
        assert_eq!(
            PageQuery::new(None, None, 20, 100),
            PageQuery::new(Some(1), Some(20), 20, 100)
        );
    }

    #[test]
    fn total_pages_rounds_up() {
        let pages = |total| Page::<u8>::new(PageQuery::new(None, Some(20), 20, 100), vec![], total).total_pages;
        assert_eq!([pages(0), pages(1), pages(20), pages(21)], [0, 1, 1, 2]);
    }

    #[test]
    fn cursor_page_detects_whether_more_follows() {
        let full = CursorPage::cut(vec![1, 2, 3], 2, |n| *n);
        assert_eq!(
            (full.data, full.next_cursor, full.has_more),
            (vec![1, 2], Some("2".into()), true)
        );
        let last = CursorPage::cut(vec![1, 2], 2, |n| *n);
        assert_eq!((last.next_cursor, last.has_more), (None, false));
    }

    #[test]
    fn time_cursor_round_trips_and_rejects_other_texts() {
        let (at, id) = (datetime!(2026-03-01 12:00:00.123456 UTC), Uuid::from_u128(7));
        for cursor in [
            TimeCursor { at, id },
            TimeCursor {
                at: TimeCursor::FIRST,
                id,
            },
            TimeCursor::LAST,
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        // The database's calendar does not reach so far back.
        let ancient = datetime!(-9999-01-01 00:00 UTC);
        let ancient = TimeCursor { at: ancient, id }.to_string();
        let (far, huge) = (format!("{} {id}", i64::MAX), format!("{} {id}", i128::MAX));
        let malformed = [
            "",
            "x",
            "1",
            "1 x",
            " ",
            "x y",
            far.as_str(),
            huge.as_str(),
            &format!("x {id}"),
        ]
        .map(hex::encode);
        for wrong in malformed
            .iter()
            .map(String::as_str)
            .chain(["zz", "7", "é", ancient.as_str()])
        {
            assert_eq!(wrong.parse::<TimeCursor>(), Err(InvalidCursor), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn page_query_stays_within_bounds(page: Option<i64>, limit: Option<i64>, max in 1_i64..1000) {
            let query = PageQuery::new(page, limit, 20, max);
            prop_assert!(query.page() >= 1 && (1..=max).contains(&query.limit()));
            let offset = i128::from(query.page() - 1) * i128::from(query.limit());
            prop_assert_eq!(query.offset(), i64::try_from(offset).unwrap_or(i64::MAX));
        }

        #[test]
        fn total_pages_cover_the_whole_list(limit in 1_i64..200, total in 0_i64..1_000_000_000) {
            let pages = Page::<u8>::new(PageQuery::new(None, Some(limit), 20, 200), vec![], total).total_pages;
            prop_assert!(pages * limit >= total && (pages - 1) * limit < total.max(1));
        }
    }
}
