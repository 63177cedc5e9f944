//! Bounded lists: by page number (offset) or by position (cursor).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

/// Asks for one numbered page. Built clamped: `page` is at least 1, `limit` between 1 and the list's maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageQuery {
    page: i64,
    limit: i64,
}

impl PageQuery {
    /// Clamps what the caller asked for to the nearest bound.
    pub fn new(page: Option<i64>, limit: Option<i64>, default: i64, max: i64) -> Self {
        Self {
            page: page.unwrap_or(1).max(1),
            limit: limit.unwrap_or(default).clamp(1, max),
        }
    }

    /// The page number, from 1.
    pub fn page(self) -> i64 {
        self.page
    }

    /// How many items a page holds.
    pub fn limit(self) -> i64 {
        self.limit
    }

    /// How many items come before the page; saturates, so that an absurd page is empty and not an overflow.
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
    /// How many items the whole list has, exactly.
    pub total: i64,
    /// The page number, from 1.
    pub page: i64,
    /// How many pages of this size the list has.
    #[serde(rename = "totalPages")]
    pub total_pages: i64,
    /// The size of a page; some lists publish it.
    #[serde(skip)]
    pub limit: i64,
}

impl<T> Page<T> {
    /// The page that answers a query.
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
    /// The same page of something else.
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

/// Asks for the items after a position, which is read where the request is: in most lists the id of the last item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorQuery<C = Uuid> {
    /// The position, as the last page gave it; none for the first page.
    pub cursor: Option<C>,
    /// How many items at most.
    pub limit: i64,
}

/// A position in a list that is sorted by a moment and then by an id. Its text is opaque, so that nobody is tempted to
/// write one by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCursor {
    /// When.
    pub at: OffsetDateTime,
    /// Of what.
    pub id: Uuid,
}

impl TimeCursor {
    /// Behind every moment there is: where a list begins that has the latest first.
    pub const LAST: Self = Self {
        at: datetime!(9999-12-31 23:59:59 UTC),
        id: Uuid::max(),
    };

    /// Before this nothing was, and no calendar of a store need reach.
    const FIRST: OffsetDateTime = datetime!(0001-01-01 00:00 UTC);
}

impl fmt::Display for TimeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let microseconds = self.at.unix_timestamp_nanos() / 1000;
        f.write_str(&hex::encode(format!("{microseconds} {}", self.id)))
    }
}

/// The text is of no position.
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

/// Some items, and where the next ones begin.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "{T}Slice")]
pub struct CursorPage<T> {
    /// The items, in the order of the list.
    pub data: Vec<T>,
    /// What to send as `cursor` to get the items that follow; null at the end of the list.
    #[schemars(example = &"0190a1b2-c3d4-7e5f-8a9b-000037386ae0")]
    #[serde(rename = "nextCursor")]
    pub next_cursor: Option<String>,
    /// Whether any items follow.
    #[serde(rename = "hasMore")]
    pub has_more: bool,
}

impl<T> CursorPage<T> {
    /// Cuts a read of `limit + 1` rows to a page: the extra row only tells that more follows.
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

    /// The same page of something else.
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
        // The calendar of the store would not reach so far back.
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
