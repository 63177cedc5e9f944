//! `TimeCursor`: a text is parsed or refused, and the text of a cursor is parsed into the same cursor.

use recado_domain::shared::TimeCursor;
use time::OffsetDateTime;
use uuid::Uuid;

/// The bytes are the text of a cursor. The first 24 of them are also a time and an id.
pub(super) fn run(input: &[u8]) {
    if let Ok(text) = str::from_utf8(input) {
        check(text.parse().ok());
    }
    let time = input.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes));
    let id = input.get(8..).and_then(<[u8]>::first_chunk::<16>);
    if let (Some(microseconds), Some(id)) = (time, id) {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(microseconds) * 1000);
        let id = Uuid::from_bytes(*id);
        let has_cursor = |at: &OffsetDateTime| at.year() >= 1;
        check(at.ok().filter(has_cursor).map(|at| TimeCursor { at, id }));
    }
}

fn check(cursor: Option<TimeCursor>) {
    if let Some(cursor) = cursor {
        let text = cursor.to_string();
        assert_eq!(text.parse(), Ok(cursor), "{text}");
        assert!((1..=9999).contains(&cursor.at.year()), "{text}");
    }
}
