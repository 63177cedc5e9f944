//! The Grafana dashboard in `docs/operating`: its queries fit the metrics and the schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Server;
use crate::telemetry::{documentation, exported_names, metric_names};

fn dashboard() -> Value {
    serde_json::from_str(&documentation("dashboard.json")).unwrap()
}

/// The panels without rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row")
}

/// The queries of all panels under this key.
fn queries<'a>(dashboard: &'a Value, key: &str) -> Vec<&'a str> {
    let targets = panels(dashboard).flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.filter_map(|target| target[key].as_str()).collect()
}

#[test]
fn panels_are_described_and_do_not_overlap() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let described = panel["description"].as_str().is_some_and(|text| text.ends_with('.'));
        assert!(described, "{title}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{title} overlaps at {x}, {y}");
            }
        }
    }
    assert!(ids.len() >= 20, "{}", ids.len());
}

#[test]
fn metric_queries_use_existing_metrics_and_queues() {
    let (dashboard, exported, page) = (dashboard(), exported_names(), documentation("metrics.md"));
    let expressions = queries(&dashboard, "expr");
    assert!(expressions.len() >= 20, "{}", expressions.len());
    for expression in expressions {
        let used = metric_names(expression);
        assert!(!used.is_empty(), "{expression}");
        assert!(used.iter().all(|name| exported.contains(*name)), "{expression}");
        let open = expression.matches(['(', '{', '[']).count();
        assert_eq!(open, expression.matches([')', '}', ']']).count(), "{expression}");
        let labels = expression.split("queue=").skip(1);
        let queues = labels.flat_map(|rest| rest.split('"').nth(1).unwrap().split('|'));
        for queue in queues {
            assert!(page.contains(&format!("`{queue}`")), "{queue}");
        }
    }
}

#[test]
fn sql_queries_return_series_of_the_account() {
    let (server, dashboard) = (Server::new(), dashboard());
    let (ana, eva) = (server.owner(), server.owner());
    for (account, messages) in [(&ana.account, 3), (&eva.account, 5)] {
        server.db.run(&format!(
            "INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent)
               VALUES ('{account}', 180, date_trunc('hour', now()), {messages});
             INSERT INTO cost_rollups (account_id, bucket_start, campaign_id, profile_id, template_id, category, market,
                 currency, amount, unpriced)
               SELECT '{account}', date_trunc('hour', now()), z, z, z, 'marketing', 'BR', 'USD', {messages}, {messages}
               FROM (SELECT '00000000-0000-0000-0000-000000000000'::uuid) z (z)"
        ));
    }
    let queries = queries(&dashboard, "rawSql");
    assert_eq!(queries.len(), 3);
    for (query, column) in queries.into_iter().zip(["sent", "amount", "messages"]) {
        let query = query
            .replace("$__timeFrom()", "now() - interval '2 days'")
            .replace("$__timeTo()", "now() + interval '1 day'")
            .replace("${account}", &ana.account);
        let series = format!("SELECT sum({column})::int || ' ' || count(q.time) FROM ({query}) q");
        assert_eq!(server.db.text(&series), "3 1", "{query}");
    }
    let accounts = dashboard.pointer("/templating/list/2/query").and_then(Value::as_str);
    let accounts = format!(
        "SELECT count(*) FROM ({}) q WHERE __value = '{}'",
        accounts.unwrap(),
        ana.account
    );
    assert_eq!(server.db.text(&accounts.replace("count(*)", "count(*)::text")), "1");
}
