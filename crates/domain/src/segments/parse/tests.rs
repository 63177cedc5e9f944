//! Every condition, every error by its path, and the limits of a tree.

use serde_json::json;

use super::super::AudienceFilters;
use super::*;

fn errors(filters: Value) -> Vec<String> {
    let filters: AudienceFilters = serde_json::from_value(filters).unwrap();
    let mut errors = FieldErrors::default();
    filters.check("filters", &mut errors);
    errors.0.into_keys().collect()
}

fn nested(depth: usize) -> Value {
    (1..depth).fold(json!({ "has_email": true }), |node, _| json!({ "not": node }))
}

#[test]
fn every_condition_is_accepted_and_serialized_unchanged() {
    let id = "00000000-0000-0000-0000-000000000001";
    for node in [
        json!({ "all": [{ "has_email": true }] }),
        json!({ "any": [{ "has_phone": true }, { "not": { "opted_out": false } }] }),
        json!({ "tag": { "id": id } }),
        json!({ "attribute": { "key": "city", "op": "eq", "value": "SP" } }),
        json!({ "attribute": { "key": "n", "op": "lte", "value": 3.5 } }),
        json!({ "attribute": { "key": "n", "op": "absent" } }),
        json!({ "created": { "within_days": 730 } }),
        json!({ "created": { "before_days": 1 } }),
        json!({ "created": { "after": "2026-01-01T00:00:00.000Z", "before": "2026-02-01T00:00:00.000Z" } }),
        json!({ "last_inbound": { "never": true } }),
        json!({ "last_inbound": { "within_days": 3 } }),
        json!({ "campaign": { "was": "not_read" } }),
        json!({ "campaign": { "id": id, "was": "clicked", "within_days": 30 } }),
        json!({ "orders": {} }),
        json!({ "orders": { "count": { "op": "gte", "value": 2 }, "status": "refunded", "product_id": "p" } }),
        json!({ "orders": { "total": { "op": "lt", "value": 99.9 }, "within_days": 90 } }),
        json!({ "metric": { "name": "visit" } }),
        json!({ "metric": { "name": "visit", "sum": { "op": "ne", "value": -1 } } }),
        json!({ "rfm": { "segments": ["champions"] } }),
        json!({ "time_zone": { "in": ["America/Manaus", "UTC"] } }),
    ] {
        let mut errors = FieldErrors::default();
        let parsed = TreeParser::new(&mut errors).node(&node, "filters.not", 1);
        assert_eq!(
            (parsed.map(|parsed| json!(parsed)), errors),
            (Some(node), FieldErrors::default())
        );
    }
}

/// Asserts that the only error is that of the node, at this path below it.
fn assert_invalid(cases: &[(Value, &str)]) {
    for (node, path) in cases {
        let found = errors(json!({ "all": [{ "has_email": true }, node] }));
        assert_eq!(found, [format!("filters.all[1]{path}")], "{node}");
    }
}

#[test]
fn invalid_node_is_named_by_its_path() {
    assert_invalid(&[
        (json!({ "age": 3 }), ".age"),
        (json!({ "time_zone": { "in": [] } }), ".time_zone.in"),
        (json!({ "time_zone": { "in": ["UTC", "BRT"] } }), ".time_zone.in[1]"),
        (json!({ "time_zone": { "in": ["UTC"], "not": [] } }), ".time_zone.not"),
        (json!({}), ""),
        (json!({ "has_email": true, "has_phone": true }), ""),
        (json!([]), ""),
        (json!({ "has_email": 1 }), ".has_email"),
        (json!({ "all": [] }), ".all"),
        (json!({ "any": vec![json!({ "has_email": true }); 21] }), ".any"),
        (json!({ "not": [] }), ".not"),
        (json!({ "tag": { "id": "x" } }), ".tag.id"),
        (json!({ "tag": {} }), ".tag.id"),
        (json!({ "tag": { "id": null } }), ".tag.id"),
        (json!({ "tag": "x" }), ".tag"),
        (json!({ "campaign": { "was": "seen" } }), ".campaign.was"),
        (json!({ "campaign": { "was": "sent", "when": 1 } }), ".campaign.when"),
        (
            json!({ "campaign": { "was": "sent", "within_days": 731 } }),
            ".campaign.within_days",
        ),
        (
            json!({ "campaign": { "was": "sent", "within_days": 0 } }),
            ".campaign.within_days",
        ),
        (
            json!({ "campaign": { "was": "sent", "within_days": 1.5 } }),
            ".campaign.within_days",
        ),
    ]);
    assert_eq!(
        errors(json!({ "all": {}, "any": [], "not": 1 })),
        ["filters.all", "filters.any", "filters.not"]
    );
}

#[test]
fn invalid_value_is_named_by_its_path() {
    assert_invalid(&[
        (
            json!({ "attribute": { "key": "a", "op": "like", "value": 1 } }),
            ".attribute.op",
        ),
        (json!({ "attribute": { "key": "a", "op": "eq" } }), ".attribute.value"),
        (
            json!({ "attribute": { "key": "a", "op": "eq", "value": [1] } }),
            ".attribute.value",
        ),
        (json!({ "attribute": { "key": "", "op": "exists" } }), ".attribute.key"),
        (json!({ "created": {} }), ".created"),
        (json!({ "created": { "within_days": 1, "before_days": 2 } }), ".created"),
        (
            json!({ "created": { "within_days": 1, "after": "2026-01-01T00:00:00Z" } }),
            ".created",
        ),
        (json!({ "created": { "after": "yesterday" } }), ".created.after"),
        (json!({ "created": { "never": true } }), ".created.never"),
        (json!({ "last_inbound": { "never": false } }), ".last_inbound.never"),
        (
            json!({ "last_inbound": { "never": true, "within_days": 1 } }),
            ".last_inbound",
        ),
        (
            json!({ "orders": { "count": { "op": "gt", "value": -1 } } }),
            ".orders.count.value",
        ),
        (
            json!({ "orders": { "count": { "op": "gt", "value": 1.5 } } }),
            ".orders.count.value",
        ),
        (
            json!({ "orders": { "total": { "op": "in", "value": 1 } } }),
            ".orders.total.op",
        ),
        (
            json!({ "orders": { "total": { "op": "eq", "value": "1" } } }),
            ".orders.total.value",
        ),
        (
            json!({ "orders": { "total": { "op": "eq", "value": 1e300 } } }),
            ".orders.total.value",
        ),
        (json!({ "orders": { "status": "lost" } }), ".orders.status"),
        (
            json!({ "orders": { "count": { "op": "eq", "value": 1 }, "total": { "op": "eq", "value": 1 } } }),
            ".orders",
        ),
        (
            json!({ "metric": { "count": { "op": "eq", "value": 1 } } }),
            ".metric.name",
        ),
        (json!({ "rfm": { "segments": [] } }), ".rfm.segments"),
        (json!({ "rfm": { "segments": ["a", 1] } }), ".rfm.segments[1]"),
    ]);
}

#[test]
fn depth_is_at_most_four() {
    assert_eq!(errors(json!({ "not": nested(4) })), [""; 0]);
    assert_eq!(errors(json!({ "not": nested(5) })), ["filters.not.not.not.not.not"]);
    assert_eq!(
        errors(json!({ "all": [nested(5)] })),
        ["filters.all[0].not.not.not.not"]
    );
}

#[test]
fn nodes_are_at_most_fifty_together() {
    let leaves = |count: usize| json!(vec![json!({ "has_email": true }); count]);
    // 20 and 18 leaves below one node each, 10 more: 50 with the two nodes.
    let filters = |last: usize| json!({ "all": [{ "any": leaves(20) }, { "all": leaves(18) }], "any": leaves(last) });
    assert_eq!(errors(filters(10)), [""; 0]);
    assert_eq!(errors(filters(12)), ["filters.any[10]"]);
}
