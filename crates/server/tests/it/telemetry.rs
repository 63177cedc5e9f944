//! What an operator sees: figures of everything that people are woken for, whatever state the database is in; and that
//! documentation and alerts speak of figures that there are.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use recado_server::routes::TABLE;
use recado_server::telemetry::definitions::{Kind, METRIC_DEFINITIONS};
use serde_json::json;
use uuid::Uuid;
use yaml_rust2::{Yaml, YamlLoader};

use crate::harness::client::connect;
use crate::harness::figures::{Figures, scrape};
use crate::harness::process::{Process, command, free_port};
use crate::harness::runs::{counted, silent};
use crate::harness::users::phone;
use crate::harness::{Options, Server, eventually, text, until};

/// A scrape never takes longer, whatever the database does.
const SCRAPE: Duration = Duration::from_secs(3);

/// A server with figures, and their port.
fn start(options: Options) -> (Server, u16) {
    let port = free_port();
    let options = options.with("METRICS_BIND", format!("127.0.0.1:{port}"));
    (Server::start(options), port)
}

/// Waits until a scrape is as wanted; the scrape.
fn seen(port: u16, what: &str, wanted: impl Fn(&Figures) -> bool) -> Figures {
    eventually(what, || Some(scrape(port)).filter(&wanted))
}

#[test]
fn what_happens_is_counted_where_it_happens() {
    let (server, port) = start(silent());
    let ana = server.owner();
    ana.profile();
    let contacts = 3;
    for number in 0..contacts {
        ana.contact("Bia", &phone(number));
    }
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    counted(&ana, &campaign, "sent", 3);
    server.get("/nowhere").send().refused(404, "NOT_FOUND");
    server
        .request("PATCH", "/api/contacts")
        .send()
        .refused(405, "METHOD_NOT_ALLOWED");
    server.get("/api/contacts").send().refused(401, "AUTH_ERROR");
    let figures = scrape(port);
    let requests = |labels: &[&str]| figures.sum("recado_http_requests_total", labels).unwrap_or_default();
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
    let sum = |name: &str, labels: &[&str]| figures.sum(name, labels);
    let took = sum(
        "recado_http_request_duration_seconds_count",
        &["route=\"/api/contacts\"", "method=\"POST\""],
    );
    assert_eq!(took, Some(3.0));
    assert_eq!(sum("recado_http_requests_in_flight", &[]), Some(0.0));
    assert_eq!(
        sum("recado_messages_total", &["kind=\"template\"", "outcome=\"accepted\""]),
        Some(3.0)
    );
    assert_eq!(
        sum(
            "recado_gateway_calls_total",
            &["gateway=\"whatsapp\"", "outcome=\"done\""]
        ),
        Some(3.0)
    );
    assert_eq!(
        sum("recado_gateway_call_duration_seconds_count", &["gateway=\"whatsapp\""]),
        Some(3.0)
    );
    assert!(sum("recado_rate_limit_decisions_total", &["decision=\"allowed\""]) >= Some(2.0));
    assert_eq!(sum("recado_panics_total", &[]), Some(0.0));
}

#[test]
fn every_figure_of_the_catalogue_is_told_with_its_type() {
    let (server, port) = start(Options::default());
    let ana = server.owner();
    ana.post("/api/campaigns", json!({ "name": "C" })).created();
    // A call to the outside.
    ana.profile();
    ana.post("/api/templates/sync", json!({})).ok();
    let figures = seen(port, "the workers have worked", |figures| {
        figures.sum(
            "recado_worker_iterations_total",
            &["worker=\"audit\"", "outcome=\"worked\""],
        ) > Some(0.0)
            || figures.sum(
                "recado_worker_iterations_total",
                &["worker=\"audit\"", "outcome=\"idle\""],
            ) > Some(1.0)
    });
    let names = figures.names();
    // Nothing is exported by this process.
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
            "{name} is in no catalogue"
        );
    }
    let queues = figures.labels("queue");
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
    let pools = figures.labels("pool");
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
            "streams",
            "workers"
        ])
    );
    assert_eq!(figures.sum("recado_database_up", &[]), Some(1.0));
    let memory = figures.sum("process_resident_memory_bytes", &[]).unwrap();
    assert!((5.0e6..2.0e9).contains(&memory), "{memory}");
}

/// Background work that hangs, or fails for ever, is seen by the moment when it last went well.
#[test]
fn every_worker_shows_itself() {
    let (_server, port) = start(Options::default());
    let figures = seen(port, "the workers begin", |figures| {
        figures.labels("worker").len() >= 25
    });
    let workers = figures.labels("worker");
    for worker in [
        "account removals",
        "recipient_batches",
        "audit",
        "billing checks",
        "billing intents",
        "billing lapses",
        "callbacks",
        "clicks",
        "deliverer",
        "gateway cancellations",
        "gateway events",
        "idempotency keys",
        "notification",
        "notification streams",
        "old gateway events",
        "rfm",
        "rfm nights",
        "run queue",
        "runs",
        "schedule",
        "statistics",
        "support mode",
        "unknown replies",
        "unknown sends",
        "waiting gateway events",
        "webhook",
        "webhook sweep",
    ] {
        assert!(workers.contains(worker), "{worker}: {workers:?}");
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    for worker in &workers {
        let label = format!("worker=\"{worker}\"");
        let last = figures
            .sum("recado_worker_last_success_timestamp_seconds", &[&label])
            .unwrap();
        assert!(now - last < 60.0, "{worker}: {last}");
    }
}

/// Ids, paths, methods and accounts become no labels: series would pile up without end.
#[test]
fn series_do_not_grow_with_what_callers_send() {
    let (server, port) = start(Options::default());
    let knock = || {
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
        // Whatever is read by workers is read by then.
        scrape(port)
    };
    knock();
    let first = seen(port, "workers were counted", |figures| {
        figures.labels("worker").len() >= 25
    });
    let second = knock();
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
fn a_database_that_is_away_or_says_nothing_holds_up_no_scrape() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = silent.local_addr().unwrap().port();
    for port_of_database in [9, hangs] {
        let prepared = Server::prepare(&Options::default());
        let mut env = prepared.environment();
        let port = free_port();
        env.push(("BIND", format!("127.0.0.1:{}", free_port())));
        env.push(("METRICS_BIND", format!("127.0.0.1:{port}")));
        env.push((
            "DATABASE_URL",
            format!("postgres://postgres@127.0.0.1:{port_of_database}/none"),
        ));
        let _process = Process::start(&["serve"], &env);
        // Every thread makes its pools when it begins.
        let figures = seen(port, "the pools of both threads", |figures| {
            figures.sum("recado_pool_connections_max", &["pool=\"requests\""]) >= Some(4.0)
        });
        assert!(figures.took < SCRAPE, "{:?}", figures.took);
        assert_eq!(figures.sum("recado_database_up", &[]), Some(0.0));
        assert_eq!(
            figures.sum("recado_queue_depth", &[]),
            None,
            "no figure is better than an old one"
        );
    }
}

/// What an operator grants to requests is the tenants'; those that belong to no account have theirs beside it.
#[test]
fn the_tenants_have_all_connections_that_are_granted() {
    let threads = std::thread::available_parallelism().unwrap().get();
    let threads = u32::try_from(threads).unwrap();
    let of_tenants = (8 / threads).max(2) * threads;
    let (_server, port) = start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    seen(port, "the pools of all threads", |figures| {
        [("tenant", of_tenants), ("owner", 2 * threads)]
            .iter()
            .all(|(role, expected)| {
                let labels = ["pool=\"requests\"", &format!("role=\"{role}\"")];
                figures.sum("recado_pool_connections_max", &labels) == Some(f64::from(*expected))
            })
    });
}

#[test]
fn a_limiter_that_is_down_is_seen() {
    let options = Options::default().with("REDIS_URL", "redis://127.0.0.1:9");
    let (server, port) = start(options);
    let ana = server.owner();
    ana.get("/api/audit-logs").ok();
    let figures = scrape(port);
    assert_eq!(
        figures.sum("recado_rate_limit_decisions_total", &["decision=\"failed_open\""]),
        Some(1.0)
    );
}

#[test]
fn without_an_address_there_is_nothing_to_ask_and_a_worker_has_its_own() {
    let server = Server::new();
    server.get("/metrics").send().refused(404, "NOT_FOUND");
    let port = free_port();
    let mut env = server.environment();
    env.push(("METRICS_BIND", format!("127.0.0.1:{port}")));
    let mut worker = Process::start(&["worker"], &env);
    let figures = seen(port, "the workers begin", |figures| {
        figures.labels("worker").contains("runs")
    });
    assert_eq!(figures.sum("recado_http_requests_total", &[]), None);
    // The reference is of the other address: there `/readyz` is never unknown.
    let mut connection = connect(port);
    connection
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(worker.stop(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    env.push(("METRICS_BIND", taken.local_addr().unwrap().to_string()));
    let mut process = Process::start(&["worker"], &env);
    assert_eq!(process.wait(), Some(1));
    assert!(process.log().contains("METRICS_BIND"), "{}", process.log());
}

#[test]
fn a_process_can_be_asked_how_it_is_without_any_other_program() {
    let server = Server::new();
    let (port, of_worker) = (server.port(), free_port());
    let ask = |arguments: &[&str], port: u16| {
        let env = [
            ("BIND", format!("0.0.0.0:{port}")),
            ("METRICS_BIND", format!("127.0.0.1:{of_worker}")),
        ];
        let output = command(arguments, &env).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ask(&["health"], port), (Some(0), String::new()));
    let (code, said) = ask(&["health"], free_port());
    assert!(code == Some(1) && said.contains("does not answer"), "{said}");
    assert_eq!(ask(&["health", "--worker"], port).0, Some(1));
    let mut env = server.environment();
    env.push(("METRICS_BIND", format!("127.0.0.1:{of_worker}")));
    let _worker = Process::start(&["worker"], &env);
    until("the worker is well", || ask(&["health", "--worker"], port).0 == Some(0));
    // A server that lacks migrations lives, and may be given no work.
    server.db.run(
        "DELETE FROM __diesel_schema_migrations WHERE version = (SELECT max(version) FROM __diesel_schema_migrations)",
    );
    // It remembers for a second that it was ready.
    let said = eventually("it is not ready", || {
        let (code, said) = ask(&["health"], port);
        (code == Some(1)).then_some(said)
    });
    assert!(said.contains("/readyz answers 503"), "{said}");
}

fn documentation(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operating")
        .join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every word of a text that looks like a figure's name.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("recado_") || word.starts_with("process_"))
        .collect()
}

/// The names under which figures are told: those of a histogram have endings.
fn told() -> BTreeSet<String> {
    let names = METRIC_DEFINITIONS.iter().flat_map(|definition| match definition.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count", ""]
            .map(|end| format!("{}{end}", definition.name))
            .to_vec(),
        Kind::Counter | Kind::Gauge => vec![definition.name.to_owned()],
    });
    names.collect()
}

#[test]
fn every_figure_is_documented_and_none_that_is_not_there() {
    let page = documentation("metrics.md");
    for definition in METRIC_DEFINITIONS {
        assert!(
            page.contains(&format!("`{}`", definition.name)),
            "{} is not documented",
            definition.name
        );
    }
    let told = told();
    for name in named(&page) {
        assert!(
            told.contains(name) || name == "recado_tenant",
            "{name} is documented and not there"
        );
    }
}

#[test]
fn alerts_are_valid_and_speak_of_figures_that_there_are() {
    let source = documentation("alerts.yml");
    let documents = YamlLoader::load_from_str(&source).unwrap();
    assert_eq!(documents.len(), 1);
    let groups = documents[0]["groups"].as_vec().unwrap();
    let rules: Vec<&Yaml> = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap())
        .collect();
    assert!(rules.len() >= 15, "{}", rules.len());
    let (told, page) = (told(), documentation("metrics.md"));
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        assert!(page.contains(name), "{name} is not explained");
        let expression = rule["expr"].as_str().unwrap();
        let used = named(expression);
        assert!(
            !used.is_empty() && used.iter().all(|name| told.contains(*name)),
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
    // Labels in alerts are those that there are.
    let (server, port) = start(Options::default());
    text(&json!(server.owner().account));
    let figures = scrape(port);
    let known = figures.labels("queue");
    let wanted = source
        .match_indices("queue=")
        .filter_map(|(at, _)| source[at..].split('"').nth(1));
    for queue in wanted.flat_map(|queues| queues.split('|')) {
        assert!(known.contains(queue), "{queue}: {known:?}");
    }
}
