//! The `/metrics` endpoint: it exports all defined metrics and responds while the database is down. Documentation and
//! alerts name only metrics that exist.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::SystemTime;

use recado_api::routes::TABLE;
use recado_server::telemetry::definitions::{Kind, METRIC_DEFINITIONS};
use recado_testkit::services::ReservedPort;
use serde_json::json;
use uuid::Uuid;
use yaml_rust2::{Yaml, YamlLoader};

use crate::harness::client::connect;
use crate::harness::process::{Process, command};
use crate::harness::runs::{wait_for_stat, without_statuses};
use crate::harness::scrape::{Scrape, scrape};
use crate::harness::users::phone;
use crate::harness::{Options, Server, eventually, text, until};

/// Starts a server. Returns it with the port of its metrics.
fn start(options: Options) -> (Server, u16) {
    let server = Server::start(options.with_metrics());
    let port = server.metrics_port();
    (server, port)
}

/// Waits until a scrape meets the condition, and returns that scrape.
fn wait_for_scrape(port: u16, what: &str, condition: impl Fn(&Scrape) -> bool) -> Scrape {
    eventually(what, || Some(scrape(port)).filter(&condition))
}

#[test]
fn requests_and_gateway_calls_are_counted() {
    let (server, port) = start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let contacts = 3;
    for number in 0..contacts {
        ana.contact("Bia", &phone(number));
    }
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    wait_for_stat(&ana, &campaign, "sent", 3);
    server.get("/nowhere").send().refused(404, "NOT_FOUND");
    server
        .request("PATCH", "/api/contacts")
        .send()
        .refused(405, "METHOD_NOT_ALLOWED");
    server.get("/api/contacts").send().refused(401, "AUTH_ERROR");
    let metrics = scrape(port);
    let requests = |labels: &[&str]| metrics.sum("recado_http_requests_total", labels).unwrap_or_default();
    assert_eq!(
        requests(&["route=\"/api/contacts\"", "method=\"POST\"", "status=\"2xx\""]),
        3.0
    );
    assert_eq!(
        requests(&["route=\"/api/contacts\"", "method=\"GET\"", "status=\"4xx\""]),
        1.0
    );
    assert_eq!(
        requests(&["route=\"/api/campaigns/{id}/execute\"", "status=\"2xx\""]),
        1.0
    );
    assert_eq!(
        requests(&["route=\"unmatched\"", "method=\"unmatched\"", "status=\"4xx\""]),
        2.0
    );
    let sum = |name: &str, labels: &[&str]| metrics.sum(name, labels);
    let durations = sum(
        "recado_http_request_duration_seconds_count",
        &["route=\"/api/contacts\"", "method=\"POST\""],
    );
    assert_eq!(durations, Some(3.0));
    assert_eq!(sum("recado_http_requests_in_flight", &[]), Some(0.0));
    assert_eq!(
        sum("recado_messages_total", &["kind=\"template\"", "outcome=\"accepted\""]),
        Some(3.0)
    );
    // Four calls verified the number: the number, its business account, the subscription and the health.
    assert_eq!(
        sum(
            "recado_gateway_calls_total",
            &["gateway=\"whatsapp\"", "outcome=\"done\""]
        ),
        Some(7.0)
    );
    assert_eq!(
        sum("recado_gateway_call_duration_seconds_count", &["gateway=\"whatsapp\""]),
        Some(7.0)
    );
    assert!(sum("recado_rate_limit_decisions_total", &["decision=\"allowed\""]) >= Some(2.0));
    assert_eq!(sum("recado_panics_total", &[]), Some(0.0));
}

#[test]
fn every_defined_metric_is_exported_with_its_type() {
    let (server, port) = start(Options::default());
    let ana = server.owner();
    ana.post("/api/campaigns", json!({ "name": "C" })).created();
    // One call to WhatsApp, so that the gateway metrics exist.
    ana.profile();
    ana.post("/api/templates/sync", json!({})).ok();
    let metrics = wait_for_scrape(port, "the audit worker has run", |metrics| {
        metrics.sum(
            "recado_worker_iterations_total",
            &["worker=\"audit\"", "outcome=\"worked\""],
        ) > Some(0.0)
            || metrics.sum(
                "recado_worker_iterations_total",
                &["worker=\"audit\"", "outcome=\"idle\""],
            ) > Some(1.0)
    });
    let names = metrics.names();
    // This process exports no traces.
    for definition in METRIC_DEFINITIONS
        .iter()
        .filter(|definition| definition.name != "recado_trace_exports_total")
    {
        assert_eq!(
            names.get(definition.name),
            Some(&definition.kind.as_str()),
            "{}",
            definition.name
        );
    }
    for name in names.keys() {
        assert!(
            METRIC_DEFINITIONS.iter().any(|definition| definition.name == *name),
            "{name} is not in METRIC_DEFINITIONS"
        );
    }
    let queues = metrics.labels("queue");
    for queue in [
        "runs_waiting",
        "outbox_audit",
        "webhook_deliveries",
        "whatsapp_callbacks",
        "whatsapp_callbacks_set_aside",
        "mail",
        "schedule",
    ] {
        assert!(queues.contains(queue), "{queue}: {queues:?}");
    }
    let pools = metrics.labels("pool");
    assert_eq!(
        pools,
        BTreeSet::from([
            "anonymous",
            "audit",
            "deliveries",
            "keys",
            "metrics",
            "notifications",
            "readiness",
            "requests",
            "row_locks",
            "streams",
            "workers"
        ])
    );
    assert_eq!(metrics.sum("recado_database_up", &[]), Some(1.0));
    let memory = metrics.sum("process_resident_memory_bytes", &[]).unwrap();
    assert!((5.0e6..2.0e9).contains(&memory), "{memory}");
}

/// The time of the last success shows a worker that hangs or always fails.
#[test]
fn every_worker_reports_its_last_success() {
    let (_server, port) = start(Options::default());
    let metrics = wait_for_scrape(port, "the workers have started", |metrics| {
        metrics.labels("worker").len() >= 25
    });
    let workers = metrics.labels("worker");
    for worker in [
        "account_removals",
        "api_key_notices",
        "audit",
        "billing_checks",
        "billing_intents",
        "callbacks",
        "clicks",
        "deliverer",
        "gateway_cancellations",
        "gateway_event_retention",
        "gateway_events",
        "held_messages",
        "held_messages_sweep",
        "idempotency_keys",
        "message_holds",
        "notification",
        "notification_streams",
        "recipient_batches",
        "rfm",
        "rfm_schedule",
        "run_queue",
        "runs",
        "schedule",
        "statistics",
        "subscription_expiry",
        "support_mode",
        "unknown_replies",
        "unknown_sends",
        "verifications",
        "buffered_gateway_events",
        "webhook",
        "webhook_sweep",
    ] {
        assert!(workers.contains(worker), "{worker}: {workers:?}");
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    for worker in &workers {
        let label = format!("worker=\"{worker}\"");
        let last = metrics
            .sum("recado_worker_last_success_timestamp_seconds", &[&label])
            .unwrap();
        assert!(now - last < 60.0, "{worker}: {last}");
    }
}

/// Ids, paths, methods and accounts are not label values: the number of series would grow without bound.
#[test]
fn metric_series_do_not_grow_with_request_data() {
    let (server, port) = start(Options::default());
    let send_requests = || {
        let ana = server.owner();
        let id = ana.contact("Bia", &phone(1));
        ana.get(&format!("/api/contacts/{id}")).ok();
        ana.get(&format!("/api/contacts/{}", Uuid::new_v4()))
            .refused(404, "NOT_FOUND");
        server
            .get(&format!("/{}/{}", Uuid::new_v4(), ana.id))
            .send()
            .refused(404, "NOT_FOUND");
        let method = format!("M{}", Uuid::new_v4().simple());
        server
            .request(&method, "/api/contacts")
            .send()
            .refused(405, "METHOD_NOT_ALLOWED");
        server.get(&format!("/r/{}", Uuid::new_v4().simple())).send();
        server.get("/api/contacts").header("X-Account-Id", &ana.account).send();
        scrape(port)
    };
    send_requests();
    let first = wait_for_scrape(port, "all workers have reported", |metrics| {
        metrics.labels("worker").len() >= 25
    });
    let second = send_requests();
    assert_eq!(first.series(), second.series());
    let routes: BTreeSet<&str> = TABLE.iter().map(|spec| spec.path).chain(["unmatched"]).collect();
    assert!(
        second.labels("route").is_subset(&routes),
        "{:?}",
        second.labels("route")
    );
    let methods = BTreeSet::from(["DELETE", "GET", "POST", "PUT", "unmatched"]);
    assert!(
        second.labels("method").is_subset(&methods),
        "{:?}",
        second.labels("method")
    );
}

#[test]
fn oldest_snapshot_is_reported_by_source() {
    let (server, port) = start(Options::default());
    server
        .db
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM accounts");
    let age = |scrape: &Scrape| scrape.sum("recado_oldest_snapshot_seconds", &["source=\"session\""]);
    wait_for_scrape(port, "the snapshot", |scrape| age(scrape) > Some(1.0));
}

#[test]
fn scrape_succeeds_while_the_database_hangs() {
    let silent_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging_port = silent_listener.local_addr().unwrap().port();
    for database_port in [9, hanging_port] {
        let prepared = Server::prepare(&Options::default());
        let mut env = prepared.environment();
        env.push(("METRICS_BIND", "127.0.0.1:0".to_owned()));
        env.push((
            "DATABASE_URL",
            format!("postgres://postgres@127.0.0.1:{database_port}/none"),
        ));
        let process = Process::start(&["serve"], &env);
        // Each thread creates its pools at its start.
        let metrics = wait_for_scrape(process.metrics_port(), "the pools of both threads", |metrics| {
            metrics.sum("recado_pool_connections_max", &["pool=\"requests\""]) >= Some(4.0)
        });
        assert_eq!(metrics.sum("recado_database_up", &[]), Some(0.0));
        assert_eq!(
            metrics.sum("recado_queue_depth", &[]),
            None,
            "queue depths are omitted instead of stale"
        );
    }
}

/// `DATABASE_POOL_SIZE` sizes the tenant pools of requests. The owner pools of requests come on top of it.
#[test]
fn tenant_pools_have_all_configured_connections() {
    let threads = std::thread::available_parallelism().unwrap().get();
    let threads = u32::try_from(threads).unwrap();
    let tenant_connections = (8 / threads).max(2) * threads;
    let (_server, port) = start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    wait_for_scrape(port, "the pools of all threads", |metrics| {
        [("tenant", tenant_connections), ("owner", 2 * threads)]
            .iter()
            .all(|(role, expected)| {
                let labels = ["pool=\"requests\"", &format!("role=\"{role}\"")];
                metrics.sum("recado_pool_connections_max", &labels) == Some(f64::from(*expected))
            })
    });
}

#[test]
fn unavailable_rate_limiter_is_counted() {
    let options = Options::default().with("REDIS_URL", "redis://127.0.0.1:9");
    let (server, port) = start(options);
    let ana = server.owner();
    ana.get("/api/audit-logs").ok();
    let metrics = scrape(port);
    assert_eq!(
        metrics.sum("recado_rate_limit_decisions_total", &["decision=\"failed_open\""]),
        Some(1.0)
    );
}

#[test]
fn metrics_need_a_bind_address_and_workers_export_too() {
    let server = Server::new();
    server.get("/metrics").send().refused(404, "NOT_FOUND");
    let mut worker = server.spawn_with(&["worker"], &[("METRICS_BIND", "127.0.0.1:0".to_owned())]);
    let port = worker.metrics_port();
    let metrics = wait_for_scrape(port, "the workers have started", |metrics| {
        metrics.labels("worker").contains("runs")
    });
    assert_eq!(metrics.sum("recado_http_requests_total", &[]), None);
    // A raw request: the harness checks replies against the OpenAPI document, where `/readyz` never returns 404.
    let mut connection = connect(port);
    connection
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    assert_eq!(worker.stop(), Some(0));
}

#[test]
fn metrics_bind_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    env.push(("METRICS_BIND", taken.local_addr().unwrap().to_string()));
    let mut process = Process::start(&["worker"], &env);
    assert_eq!(process.wait(), Some(1));
    assert!(process.log().contains("METRICS_BIND"), "{}", process.log());
}

#[test]
fn health_command_checks_server_and_worker() {
    let server = Server::new();
    let (port, worker_port) = (server.port(), ReservedPort::new().unwrap());
    let check_health = |arguments: &[&str], port: u16| {
        let env = [
            ("BIND", format!("0.0.0.0:{port}")),
            ("METRICS_BIND", worker_port.address()),
        ];
        let output = command(arguments, &env).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check_health(&["health"], port), (Some(0), String::new()));
    let (code, stderr) = check_health(&["health"], 9);
    assert!(code == Some(1) && stderr.contains("does not answer"), "{stderr}");
    assert_eq!(check_health(&["health", "--worker"], port).0, Some(1));
    let _worker = server.spawn_with(&["worker"], &[("METRICS_BIND", worker_port.address())]);
    until("the worker is healthy", || {
        check_health(&["health", "--worker"], port).0 == Some(0)
    });
    // A server that lacks a migration is alive but not ready.
    server.db.run(
        "DELETE FROM __diesel_schema_migrations WHERE version = (SELECT max(version) FROM __diesel_schema_migrations)",
    );
    // The server caches its readiness for a second.
    let stderr = eventually("the server is not ready", || {
        let (code, stderr) = check_health(&["health"], port);
        (code == Some(1)).then_some(stderr)
    });
    assert!(stderr.contains("/readyz answers 503"), "{stderr}");
}

pub fn documentation(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operating")
        .join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text that have the form of a metric name.
pub fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("recado_") || word.starts_with("process_"))
        .collect()
}

/// The exported metric names. A histogram also has names with the suffixes `_bucket`, `_sum` and `_count`.
pub fn exported_names() -> BTreeSet<String> {
    let names = METRIC_DEFINITIONS.iter().flat_map(|definition| match definition.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count", ""]
            .map(|suffix| format!("{}{suffix}", definition.name))
            .to_vec(),
        Kind::Counter | Kind::Gauge => vec![definition.name.to_owned()],
    });
    names.collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let page = documentation("metrics.md");
    for definition in METRIC_DEFINITIONS {
        assert!(
            page.contains(&format!("`{}`", definition.name)),
            "{} is not documented",
            definition.name
        );
    }
    let exported = exported_names();
    for name in metric_names(&page) {
        assert!(
            exported.contains(name) || ["recado_tenant", "recado_dashboard"].contains(&name),
            "{name} is documented but does not exist"
        );
    }
}

#[test]
fn alerts_are_valid_and_use_existing_metrics() {
    let source = documentation("alerts.yml");
    let documents = YamlLoader::load_from_str(&source).unwrap();
    assert_eq!(documents.len(), 1);
    let groups = documents[0]["groups"].as_vec().unwrap();
    let rules: Vec<&Yaml> = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap())
        .collect();
    assert!(rules.len() >= 15, "{}", rules.len());
    let (exported, page) = (exported_names(), documentation("metrics.md"));
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} is defined twice");
        assert!(page.contains(name), "{name} is not explained");
        let expression = rule["expr"].as_str().unwrap();
        let used = metric_names(expression);
        assert!(
            !used.is_empty() && used.iter().all(|name| exported.contains(*name)),
            "{name}: {used:?}"
        );
        let open = expression.matches(['(', '{', '[']).count();
        assert_eq!(open, expression.matches([')', '}', ']']).count(), "{name}");
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("page" | "ticket")), "{name}: {severity:?}");
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].as_str().is_some_and(|text| !text.is_empty()),
                "{name}"
            );
        }
    }
    // The queue labels in alerts exist.
    let (server, port) = start(Options::default());
    text(&json!(server.owner().account));
    let metrics = scrape(port);
    let exported_queues = metrics.labels("queue");
    let alert_queues = source
        .match_indices("queue=")
        .filter_map(|(at, _)| source[at..].split('"').nth(1));
    for queue in alert_queues.flat_map(|queues| queues.split('|')) {
        assert!(exported_queues.contains(queue), "{queue}: {exported_queues:?}");
    }
}
