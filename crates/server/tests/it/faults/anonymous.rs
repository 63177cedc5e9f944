//! Floods of unauthenticated requests (clicks, readiness probes, unknown keys) do not block authenticated requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::Request;
use crate::harness::database::Database;
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

/// Concurrent callers, many more than database connections.
const CALLERS: usize = 40;

/// Repetitions in the test of statement counts.
const REQUESTS: usize = 600;

/// The pause of a caller between requests. The tests exhaust connections, not processors.
const PAUSE: Duration = Duration::from_millis(20);

const TRIES: usize = 5;

/// The shortest refresh interval of the caches, in milliseconds.
const REFRESH_MS: u128 = 150;

/// A well-formed API key that does not exist.
fn unknown_key() -> String {
    format!("svc_live_sk_{}", Uuid::new_v4().simple())
}

/// Sends requests from many threads while `work` runs. Ignores the responses.
fn with_flood(calls: impl Fn(usize) -> Request + Sync, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ends the flood even if the work panics.
        let _stop = StopOnDrop(&over);
        for caller in 0..CALLERS {
            let (over, calls) = (&over, &calls);
            scope.spawn(move || {
                for number in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    calls(caller + number * CALLERS).try_send().ok();
                    std::thread::sleep(PAUSE);
                }
            });
        }
        work();
    });
}

/// Sets the flag when dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asserts that authenticated requests succeed, for cached and for new callers.
fn assert_authenticated_served(ana: &User<'_>, key: &str) {
    for _ in 0..15 {
        assert_served(&ana.request("GET", "/api/tags"));
        assert_served(&ana.server.get("/api/tags").bearer(key));
        let newcomer = ana.server.member(&ana.account, "viewer");
        assert_served(&newcomer.request("GET", "/api/tags"));
        std::thread::sleep(PAUSE);
    }
}

/// Asserts success within `TRIES`. A busy machine needs a few; a request that queues behind the flood needs far more.
fn assert_served(request: &Request) {
    let refused = (0..TRIES)
        .map(|_| request.clone().send())
        .take_while(|reply| reply.status == 503);
    assert!(refused.count() < TRIES);
}

/// A statistic of a table, such as scans or updates. Connections report it when they close.
fn table_statistic(server: &Server, table: &str, expression: &str) -> u128 {
    server.db.run("SELECT pg_stat_clear_snapshot()");
    let count = format!("SELECT {expression} FROM pg_stat_user_tables WHERE relname = '{table}'");
    server.db.text(&count).parse().unwrap()
}

const SCANS: &str = "coalesce(seq_scan, 0) + coalesce(idx_scan, 0)";

/// Statements on the migrations table: one statement scans the index once per version.
const VERSION_STATEMENTS: &str =
    "coalesce(seq_scan, 0) + coalesce(idx_scan, 0) / (SELECT count(*) FROM __diesel_schema_migrations)";

fn create_link(ana: &User<'_>) -> String {
    let reply = ana.post("/api/links", json!({ "original_url": "https://loja.example/" }));
    text(&reply.created()["short_code"])
}

/// F38: another transaction locks the link's row.
#[test]
fn clicks_on_a_locked_link_lead_on_and_are_counted_later() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    let (code, key) = (create_link(&ana), api_keys::create_key(&ana));
    let holder = Database::at(&server.db.url());
    holder.run("BEGIN; SELECT FROM links FOR UPDATE");
    let clicks = AtomicUsize::new(0);
    let link = server.get(&format!("/r/{code}"));
    let click = |_| {
        clicks.fetch_add(1, Ordering::SeqCst);
        link.clone()
    };
    with_flood(click, || {
        for _ in 0..20 {
            let (status, head) = link.clone().response_head();
            assert_eq!(status, 302, "{head}");
        }
        assert_authenticated_served(&ana, &key);
    });
    holder.run("COMMIT");
    let expected = i64::try_from(clicks.load(Ordering::SeqCst) + 20).unwrap();
    until("every click is counted", || {
        ana.get("/api/links").ok()["data"][0]["clicks"] == expected
    });
    let rollups = "SELECT sum(clicks) FROM link_rollups WHERE bucket_minutes = 15";
    assert_eq!(server.db.text(rollups), expected.to_string());
}

/// F38: look-ups of codes and endpoints that wait for a locked table.
#[test]
fn unknown_codes_endpoints_and_keys_leave_connections_to_others() {
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let ana = server.owner();
    let (key, unused) = (api_keys::create_key(&ana), api_keys::create_key(&ana));
    server.get("/api/tags").bearer(&key).send().ok();
    let holder = Database::at(&server.db.url());
    holder.run("BEGIN; LOCK TABLE link_codes, webhook_endpoint_ids IN ACCESS EXCLUSIVE MODE");
    let (get, post) = (server.get("/"), server.post("/"));
    let call = |number: usize| match number % 2 {
        0 => get.clone().path(&format!("/r/{}", Uuid::new_v4().simple())),
        _ => post.clone().path(&format!("/api/hooks/{}", Uuid::new_v4())),
    };
    with_flood(call, || {
        assert_served(&server.get("/api/tags").bearer(&unused));
        assert_authenticated_served(&ana, &key);
    });
    holder.run("COMMIT");
    until("look-ups of codes succeed again", || {
        server.get("/r/nowhere").send().status == 404
    });
    let call = |_| get.clone().path("/api/tags").bearer(&unknown_key());
    with_flood(call, || assert_authenticated_served(&ana, &key));
}

/// F38: every look-up is slow, so that look-ups one at a time would exceed the wait timeout.
#[test]
fn first_use_of_a_key_does_not_wait_behind_unknown_keys() {
    let options = Options::default()
        .with("DATABASE_POOL_SIZE", "8")
        .with("DATABASE_WAIT_TIMEOUT", "750ms");
    let server = Server::start(options);
    let ana = server.owner();
    let keys: Vec<String> = (0..10).map(|_| api_keys::create_key(&ana)).collect();
    server.db.run(
        "ALTER TABLE api_key_hashes RENAME TO fast_hashes;
         CREATE VIEW api_key_hashes AS
           SELECT f.* FROM (SELECT pg_sleep(0.2) OFFSET 0) slow, fast_hashes f",
    );
    let get = server.get("/api/tags");
    with_flood(
        |_| get.clone().bearer(&unknown_key()),
        || {
            for key in &keys {
                assert_served(&server.get("/api/tags").bearer(key));
            }
        },
    );
}

/// F38.
#[test]
fn repeated_anonymous_requests_cost_hardly_a_statement() {
    let server = Server::new();
    let ana = server.owner();
    let (code, key) = (create_link(&ana), api_keys::create_key(&ana));
    let unknown = unknown_key();
    let counts = [
        ("__diesel_schema_migrations", VERSION_STATEMENTS),
        ("link_codes", SCANS),
        ("api_key_hashes", SCANS),
        ("links", "n_tup_upd"),
    ];
    let before = counts.map(|(table, expression)| table_statistic(&server, table, expression));
    let began = Instant::now();
    for _ in 0..REQUESTS {
        server.get("/readyz").send().ok();
        assert_eq!(server.get(&format!("/r/{code}")).response_head().0, 302);
        server.get("/r/nowhere").send().refused(404, "NOT_FOUND");
        server.get("/api/tags").bearer(&key).send().ok();
        let refused = server.get("/api/tags").bearer(&unknown).send();
        // Unknown keys of one address are limited.
        assert!([401, 429].contains(&refused.status), "{}", refused.text);
    }
    let took = began.elapsed().as_millis();
    assert_eq!(server.stop(), Some(0));
    let open = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'recado%'";
    until("the server's connections are closed", || server.db.count(open) == 0);
    let at_most = took / REFRESH_MS + 10;
    for ((table, expression), before) in counts.into_iter().zip(before) {
        let statements = table_statistic(&server, table, expression) - before;
        assert!(statements <= at_most, "{table}: {statements} in {took} ms");
    }
    // Clicks are buffered in memory and flushed before the process ends.
    let clicks = server.db.text("SELECT clicks FROM links");
    assert_eq!(clicks, REQUESTS.to_string());
}
