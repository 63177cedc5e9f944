//! Database outages: requests get 503 within a bound, and service resumes without a restart.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::{Reply, Request};
use crate::harness::cluster::Cluster;
use crate::harness::runs::{assert_stats_add_up, calls, final_status, usage, wait_for_stat, without_statuses};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, until};

/// Clients that read and write continuously.
struct Load {
    stop: Arc<AtomicBool>,
    results: Arc<LoadResults>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadResults {
    done: AtomicUsize,
    refused: AtomicUsize,
    /// The names of acknowledged tags.
    acknowledged: Mutex<Vec<String>>,
}

impl LoadResults {
    /// Records a response: a success, or a correct 503.
    fn record(&self, reply: Reply) -> bool {
        self.done.fetch_add(1, Ordering::SeqCst);
        if [200, 201].contains(&reply.status) {
            return true;
        }
        assert!(
            reply.header("retry-after").is_some(),
            "{}: {}",
            reply.status,
            reply.text
        );
        let error = reply.refused(503, "UNAVAILABLE");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
        self.refused.fetch_add(1, Ordering::SeqCst);
        false
    }
}

impl Load {
    fn start(users: &[Request], clients: usize) -> Self {
        let (stop, results) = (Arc::new(AtomicBool::new(false)), Arc::new(LoadResults::default()));
        let threads = (0..clients).map(|client| {
            let (stop, results) = (Arc::clone(&stop), Arc::clone(&results));
            let tags = users[client % users.len()].clone();
            std::thread::spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    if number % 3 > 0 {
                        results.record(tags.clone().method("GET").send());
                        continue;
                    }
                    let name = format!("load-{client}-{number}");
                    let reply = tags.clone().json(&json!({ "name": name })).send();
                    if results.record(reply) {
                        results.acknowledged.lock().unwrap().push(name);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { stop, results, threads }
    }

    fn done(&self) -> usize {
        self.results.done.load(Ordering::SeqCst)
    }

    fn refused(&self) -> usize {
        self.results.refused.load(Ordering::SeqCst)
    }

    /// Stops the clients and asserts that every acknowledged write is stored.
    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let acknowledged = self.results.acknowledged.lock().unwrap();
        assert!(!acknowledged.is_empty());
        let names = acknowledged.join("','");
        let stored = server.db.count(&format!("FROM tags WHERE name IN ('{names}')"));
        assert_eq!(
            stored,
            i64::try_from(acknowledged.len()).unwrap(),
            "acknowledged writes were lost"
        );
    }
}

/// Asserts that the process is alive but not ready, and refuses requests with 503.
fn assert_unavailable(server: &Server, load: &Load) {
    let refused = load.refused();
    until("40 more requests were refused", || load.refused() >= refused + 40);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        server.get("/healthz").send().ok();
        let reply = server.get("/readyz").send();
        assert!(reply.header("retry-after").is_some());
        reply.refused(503, "UNAVAILABLE");
    }
}

/// F06, R2, R8.
#[test]
fn database_crash_during_campaign_loses_nothing() {
    const CONTACTS: i64 = 240;
    let cluster = Cluster::start();
    let options = without_statuses()
        .with("CAMPAIGN_MESSAGE_DELAY_MS", "25")
        .with("SEND_UNKNOWN_TTL", "2s");
    let server = Server::start_on(cluster.database(), &options);
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    ana.contacts(usize::try_from(CONTACTS).unwrap());
    let id = ana.plain_campaign();
    let requests = [ana.request("POST", "/api/tags"), bia.request("POST", "/api/tags")];
    let load = Load::start(&requests, 4);
    ana.send(&id);
    until("some messages were sent", || server.whatsapp.counters().accepted >= 40);

    cluster.crash();
    assert_unavailable(&server, &load);
    let before = server.whatsapp.sends().len();
    assert!(before < 240, "the run was over before: {before}");
    cluster.launch();
    until("requests succeed again", || {
        ana.get("/api/contacts?limit=1").status == 200
    });
    until("the run goes on", || server.whatsapp.sends().len() > before);
    until("the server is ready", || server.get("/readyz").send().status == 200);

    server.db.reconnect();
    let status = eventually("the run ends", || {
        let reply = ana.get(&format!("/api/campaigns/{id}"));
        Some(reply)
            .filter(|reply| reply.status == 200)
            .map(|reply| reply.ok()["status"].clone())
            .filter(|status| status != "sending")
    });
    assert!(["completed", "partial"].contains(&status.as_str().unwrap()), "{status}");
    load.end(&server);
    assert_sends_are_exact(&ana, &id, CONTACTS);
}

/// Asserts that no send is lost, no recipient is called twice, and stats and quota match the sends.
fn assert_sends_are_exact(ana: &User<'_>, id: &str, contacts: i64) {
    let server = ana.server;
    let stats = wait_for_stat(ana, id, "pending", 0);
    assert_stats_add_up(&stats);
    let (sent, failed) = (stats["sent"].as_i64().unwrap(), stats["failed"].as_i64().unwrap());
    assert_eq!((stats["total"].as_i64().unwrap(), sent + failed), (contacts, contacts));
    assert!(failed <= 50, "{failed} sends have an unknown outcome");
    let calls = calls(server);
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    assert!(
        i64::try_from(calls.len()).unwrap() >= sent,
        "a sent message has no call"
    );
    let explained = "FROM campaign_sends WHERE status = 'failed' AND error_message LIKE '%unknown%'";
    assert_eq!(server.db.count(explained), failed);
    assert_eq!(usage(server, &ana.account), format!("{sent} 0"));
    assert_eq!(final_status(ana, id), if failed == 0 { "completed" } else { "partial" });
}

/// Terminates all connections of the server, waits until they are gone and returns their number.
fn cut_connections(server: &Server) -> usize {
    let broken: Vec<String> = server
        .db
        .rows(
            "SELECT pid FROM (SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()) AS broken",
        )
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let left = format!("FROM pg_stat_activity WHERE pid IN ({})", broken.join(","));
    until("all terminated connections are gone", || server.db.count(&left) == 0);
    broken.len()
}

/// The number of requests that timed out while waiting for a connection, which happens on a slow machine.
fn timed_out(server: &Server) -> usize {
    let log = server.log();
    let is_timeout = |line: &&str| line.contains("request found") && line.contains("Timeout occurred");
    log.lines().filter(is_timeout).count()
}

/// F07.
#[test]
fn cut_connections_fail_at_most_one_request_each() {
    const POOL: usize = 8;
    const ROUNDS: usize = 20;
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", POOL.to_string()));
    let (ana, bia) = (server.owner(), server.owner());
    ana.tag("only-ana");
    let requests = [ana.request("POST", "/api/tags"), bia.request("POST", "/api/tags")];
    let load = Load::start(&requests, 8);
    let mut allowed = 0;
    for round in 0..ROUNDS {
        // Background work has connections of its own; the load has at most as many as the pool.
        allowed += cut_connections(&server).min(POOL);
        let done = load.done();
        until("every client has sent more requests", || load.done() >= done + 4 * POOL);
        // Compares totals of all rounds: a connection cut late in a round may fail a request in the next round.
        let refused = load.refused();
        let excused = if refused > allowed { timed_out(&server) } else { 0 };
        assert!(
            refused <= allowed + excused,
            "round {round}: {refused} refused, {allowed} allowed, {excused} timed out"
        );
    }
    load.end(&server);
    for _ in 0..40 {
        let tags = bia.get("/api/tags?limit=100").ok();
        assert!(!tags.to_string().contains("only-ana"), "{tags}");
        ana.get("/api/tags").ok();
    }
}
