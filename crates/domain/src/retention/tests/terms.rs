//! Terms, their bounds and when they are in force.

use serde_json::json;
use time::OffsetDateTime;
use time::macros::datetime;

use crate::retention::{NOTICE, RetentionBounds, RetentionInput, RetentionKind, RetentionTerms};
use crate::shared::FieldErrors;

const NOW: OffsetDateTime = datetime!(2026-11-29 10:30 UTC);

const BOUNDS: RetentionBounds = RetentionBounds {
    min_days: 30,
    max_days: 3650,
    force_days: None,
};

const KIND: RetentionKind = RetentionKind::Messages;

fn parse(kind: RetentionKind, days: Option<i64>, bounds: &RetentionBounds) -> Result<RetentionInput, FieldErrors> {
    RetentionInput::parse([(kind, days)], bounds)
}

/// The terms after a change at `at`, and whether they are notified as shorter.
fn change(
    terms: &RetentionTerms,
    days: Option<i64>,
    bounds: &RetentionBounds,
    at: OffsetDateTime,
) -> (RetentionTerms, bool) {
    let input = parse(KIND, days, bounds).unwrap();
    let (terms, shortened) = terms.changed(&input, bounds, at);
    (terms, !shortened.is_empty())
}

fn in_force(terms: &RetentionTerms, at: OffsetDateTime) -> Option<u16> {
    terms.of(KIND).in_force(at)
}

#[test]
fn terms_are_bounded_and_null_is_for_ever() {
    for (kind, days, accepted) in [
        (KIND, None, true),
        (KIND, Some(29), false),
        (KIND, Some(30), true),
        (KIND, Some(3650), true),
        (KIND, Some(3651), false),
        (KIND, Some(-30), false),
        (KIND, Some(i64::MAX), false),
        (RetentionKind::Audit, Some(364), false),
        (RetentionKind::Audit, Some(365), true),
    ] {
        assert_eq!(parse(kind, days, &BOUNDS).is_ok(), accepted, "{kind} {days:?}");
    }
    let errors = parse(RetentionKind::Audit, Some(30), &BOUNDS).unwrap_err();
    assert_eq!(
        errors.0["audit_days"],
        ["must be 365 to 3650 days, or null to keep them for ever"]
    );
}

#[test]
fn shorter_term_takes_effect_a_day_later() {
    let (terms, is_shorter) = change(&RetentionTerms::default(), Some(90), &BOUNDS, NOW);
    assert!(is_shorter);
    assert_eq!(terms.days(KIND), Some(90));
    let just_before = NOW + NOTICE - time::Duration::SECOND;
    assert_eq!((in_force(&terms, NOW), in_force(&terms, just_before)), (None, None));
    assert_eq!(in_force(&terms, NOW + NOTICE), Some(90));
    assert_eq!(terms.take_effect_at(NOW), Some(NOW + NOTICE));
    assert_eq!(terms.take_effect_at(NOW + NOTICE), None);
    assert_eq!(terms.horizon(KIND, &BOUNDS, NOW), None);
    // What it will remove is known before.
    assert_eq!(
        terms.set_horizon(KIND, &BOUNDS, NOW),
        Some(datetime!(2026-08-31 00:00 UTC))
    );
}

#[test]
fn another_change_takes_a_shorter_term_back() {
    let (terms, _) = change(&RetentionTerms::default(), Some(90), &BOUNDS, NOW);
    let later = NOW + time::Duration::HOUR;
    let (back, is_shorter) = change(&terms, None, &BOUNDS, later);
    assert!(!is_shorter);
    assert_eq!(in_force(&back, NOW + NOTICE * 2), None);
    // The same days again do not move the time at which they take effect, and a second shorter term waits a day too.
    let (again, is_shorter) = change(&terms, Some(90), &BOUNDS, later);
    assert_eq!((again == terms, is_shorter), (true, false));
    let (shorter, is_shorter) = change(&terms, Some(60), &BOUNDS, later);
    assert!(is_shorter);
    assert_eq!(in_force(&shorter, NOW + NOTICE), None);
    assert_eq!(in_force(&shorter, later + NOTICE), Some(60));
}

#[test]
fn longer_term_takes_effect_at_once() {
    let (terms, _) = change(&RetentionTerms::default(), Some(90), &BOUNDS, NOW);
    let later = NOW + NOTICE * 2;
    let (longer, is_shorter) = change(&terms, Some(120), &BOUNDS, later);
    assert!(!is_shorter);
    assert_eq!(in_force(&longer, later), Some(120));
    // From a term in force to a shorter one: the longer one holds until then.
    let (shorter, is_shorter) = change(&longer, Some(100), &BOUNDS, later);
    assert!(is_shorter);
    assert_eq!(in_force(&shorter, later), Some(120));
}

#[test]
fn forced_term_holds_without_own_term() {
    let bounds = RetentionBounds {
        force_days: Some(200),
        ..BOUNDS
    };
    let none = RetentionTerms::default();
    assert_eq!(none.horizon(KIND, &bounds, NOW), Some(datetime!(2026-05-13 00:00 UTC)));
    assert_eq!(bounds.forced(RetentionKind::Audit), Some(365));
    // Longer than the forced one: at once. Back to none: the forced term is shorter, so it waits.
    let (own, is_shorter) = change(&none, Some(300), &bounds, NOW);
    assert_eq!((in_force(&own, NOW), is_shorter), (Some(300), false));
    let (back, is_shorter) = change(&own, None, &bounds, NOW);
    assert_eq!((in_force(&back, NOW), is_shorter), (Some(300), true));
    assert_eq!(in_force(&back, NOW + NOTICE), None);
    let (equal, is_shorter) = change(&none, Some(200), &bounds, NOW);
    assert_eq!((in_force(&equal, NOW), is_shorter), (Some(200), false));
}

#[test]
fn nothing_is_removed_without_terms() {
    let terms = RetentionTerms::default();
    assert!(!terms.remove_any(&BOUNDS));
    for kind in RetentionKind::ALL {
        assert_eq!(terms.horizon(*kind, &BOUNDS, NOW), None, "{kind}");
        assert_eq!(BOUNDS.forced(*kind), None);
    }
}

#[test]
fn stored_terms_are_read_back() {
    let (terms, _) = change(&RetentionTerms::default(), Some(90), &BOUNDS, NOW);
    let stored = serde_json::to_value(&terms).unwrap();
    assert_eq!(
        stored,
        json!({ "messages": { "days": 90, "before": null, "effective_at": "2026-11-30T10:30:00.000Z" } })
    );
    assert_eq!(serde_json::from_value::<RetentionTerms>(stored).unwrap(), terms);
    // A kind of a later version, and fields that an earlier one did not write.
    let other = json!({ "orders": { "days": 40 }, "faxes": { "days": 3 } });
    let other: RetentionTerms = serde_json::from_value(other).unwrap();
    assert_eq!(other.of(RetentionKind::Orders).in_force(NOW), Some(40));
}
