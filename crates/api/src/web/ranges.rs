//! Conditional requests and single byte ranges of a file (RFC 9110, sections 13 and 14).

use std::ops::Range;

use actix_web::http::header::{HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};

/// What a request asks of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection {
    Whole,
    /// A part that is not empty and lies within the file.
    Part(Range<u64>),
    /// The client has the file.
    NotModified,
    /// The range is outside the file.
    Unsatisfiable,
}

/// Decides by the headers, the file's quoted entity tag and its size. Several ranges, and a malformed one, select the
/// whole file.
pub fn select(headers: &HeaderMap, etag: &str, size: u64) -> Selection {
    if tag_list(headers, &IF_NONE_MATCH).is_some_and(|tags| matches_any(&tags, etag)) {
        return Selection::NotModified;
    }
    let is_current = text(headers, &IF_RANGE).is_none_or(|tag| tag.trim() == etag);
    match text(headers, &RANGE)
        .filter(|_| is_current)
        .and_then(|range| parse(range, size))
    {
        None => Selection::Whole,
        Some(range) if range.is_empty() => Selection::Unsatisfiable,
        Some(range) => Selection::Part(range),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a list of entity tags has this one. Weak tags and those of compressed forms count as the tag itself.
pub fn matches_any(tags: &str, etag: &str) -> bool {
    tags.split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || uncoded(tag.strip_prefix("W/").unwrap_or(tag)) == uncoded(etag))
}

/// The entity tags of all headers of this name. None: there is no such header.
pub fn tag_list(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lists: Vec<&str> = headers
        .get_all(name)
        .map(|list| list.to_str().unwrap_or_default())
        .collect();
    (!lists.is_empty()).then(|| lists.join(","))
}

/// Whether a list of entity tags has this one, of a complete body or a compressed form. Weak tags do not count.
pub fn matches_strongly(tags: &str, etag: &str) -> bool {
    let mut tags = tags.split(',').map(str::trim);
    tags.any(|tag| tag == "*" || (tag.starts_with('"') && uncoded(tag) == uncoded(etag)))
}

/// An entity tag without its quotes and the name of a content coding.
fn uncoded(tag: &str) -> &str {
    let tag = tag.trim_matches('"');
    let bare = tag.strip_suffix("-gzip").or_else(|| tag.strip_suffix("-br"));
    bare.unwrap_or(tag)
}

/// The selected bytes; empty if the range is outside the file. None: not a single range of bytes.
fn parse(range: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = range.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let length = number(last)?;
        return Some(size.saturating_sub(length)..size);
    }
    let start: u64 = number(first)?;
    let end = match last {
        "" => size,
        last => number(last)?.saturating_add(1),
    };
    if end <= start && !last.is_empty() {
        return None;
    }
    let end = end.min(size);
    Some(start.min(end)..end)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    const TAG: &str = "\"abc\"";

    fn selected(headers: &[(HeaderName, &str)], size: u64) -> Selection {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        select(&map, TAG, size)
    }

    #[test]
    fn single_range_selects_a_part() {
        let part = |range: &str, size| selected(&[(RANGE, range)], size);
        for (range, expected) in [
            ("bytes=10-19", Selection::Part(10..20)),
            ("bytes=0-0", Selection::Part(0..1)),
            ("bytes=90-", Selection::Part(90..100)),
            ("bytes=90-500", Selection::Part(90..100)),
            ("bytes=-5", Selection::Part(95..100)),
            ("bytes=-500", Selection::Part(0..100)),
            ("bytes=100-", Selection::Unsatisfiable),
            ("bytes=100-200", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=99999999999999999999-", Selection::Unsatisfiable),
            ("bytes=0-1,5-6", Selection::Whole),
            ("bytes=5-4", Selection::Whole),
            ("bytes=a-b", Selection::Whole),
            ("bytes=-", Selection::Whole),
            ("lines=0-1", Selection::Whole),
        ] {
            assert_eq!(part(range, 100), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Selection::Unsatisfiable);
    }

    #[test]
    fn conditions_compare_the_entity_tag() {
        for (tags, expected) in [
            (TAG, Selection::NotModified),
            ("W/\"abc\"", Selection::NotModified),
            ("\"x\", \"abc\"", Selection::NotModified),
            ("*", Selection::NotModified),
            ("\"abc-gzip\"", Selection::NotModified),
            ("W/\"abc-br\"", Selection::NotModified),
            ("\"x\"", Selection::Whole),
        ] {
            assert_eq!(selected(&[(IF_NONE_MATCH, tags)], 100), expected, "{tags}");
        }
        let ranged = |tag: &str| selected(&[(IF_RANGE, tag), (RANGE, "bytes=0-9")], 100);
        assert_eq!(ranged(TAG), Selection::Part(0..10));
        assert_eq!(ranged("W/\"abc\""), Selection::Whole);
        assert_eq!(ranged("\"x\""), Selection::Whole);
    }
}
