//! A database that goes away in the middle of everything: answers that say so, and nothing to do for anybody when it is
//! back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::{Reply, Request};
use crate::harness::cluster::Cluster;
use crate::harness::runs::{adds_up, calls, counted, ended, silent, usage};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, until};

/// What somebody waits, at most, to be told that the database is away.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// People who read and write all the time, and what they were told.
struct Load {
    stop: Arc<AtomicBool>,
    told: Arc<Told>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Told {
    done: AtomicUsize,
    refused: AtomicUsize,
    /// Tags that were acknowledged.
    kept: Mutex<Vec<String>>,
}

impl Told {
    /// One answer: a success, or a proper word that the service is away.
    fn hear(&self, reply: Reply, took: Duration) -> bool {
        self.done.fetch_add(1, Ordering::SeqCst);
        if [200, 201].contains(&reply.status) {
            return true;
        }
        assert!(took < TOLD_WITHIN, "{took:?}");
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
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Told::default()));
        let threads = (0..clients).map(|client| {
            let (stop, told) = (Arc::clone(&stop), Arc::clone(&told));
            let tags = users[client % users.len()].clone();
            std::thread::spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let began = Instant::now();
                    if number % 3 > 0 {
                        told.hear(tags.clone().method("GET").send(), began.elapsed());
                        continue;
                    }
                    let name = format!("load-{client}-{number}");
                    let reply = tags.clone().json(&json!({ "name": name })).send();
                    if told.hear(reply, began.elapsed()) {
                        told.kept.lock().unwrap().push(name);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { stop, told, threads }
    }

    fn done(&self) -> usize {
        self.told.done.load(Ordering::SeqCst)
    }

    fn refused(&self) -> usize {
        self.told.refused.load(Ordering::SeqCst)
    }

    /// Ends it; everything that was acknowledged is there.
    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let kept = self.told.kept.lock().unwrap();
        assert!(!kept.is_empty());
        let names = kept.join("','");
        let there = server.db.count(&format!("FROM tags WHERE name IN ('{names}')"));
        assert_eq!(there, i64::try_from(kept.len()).unwrap(), "acknowledged and not there");
    }
}

/// While the database is away: the process lives, is not ready, and says so to everybody.
fn away(server: &Server, load: &Load) {
    let refused = load.refused();
    until("everybody was refused often", || load.refused() >= refused + 40);
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
fn a_database_that_crashes_in_the_middle_of_a_campaign_costs_time_and_nothing_else() {
    const CONTACTS: i64 = 240;
    let cluster = Cluster::start();
    let options = silent()
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
    until("some were sent", || server.whatsapp.counters().accepted >= 40);

    cluster.crash();
    away(&server, &load);
    let before = server.whatsapp.sends().len();
    assert!(before < 240, "the run was over before: {before}");
    cluster.launch();
    until("somebody is served", || ana.get("/api/contacts?limit=1").status == 200);
    until("the run goes on", || server.whatsapp.sends().len() > before);
    until("it is ready", || server.get("/readyz").send().status == 200);

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
    ledger_is_exact(&ana, &id, CONTACTS);
}

/// Nobody twice, nobody lost, and every counter what it counts.
fn ledger_is_exact(ana: &User<'_>, id: &str, contacts: i64) {
    let server = ana.server;
    let stats = counted(ana, id, "pending", 0);
    adds_up(&stats);
    let (sent, failed) = (stats["sent"].as_i64().unwrap(), stats["failed"].as_i64().unwrap());
    assert_eq!((stats["total"].as_i64().unwrap(), sent + failed), (contacts, contacts));
    assert!(failed <= 50, "{failed} were in flight");
    let calls = calls(server);
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    assert!(i64::try_from(calls.len()).unwrap() >= sent, "somebody was never called");
    let explained = "FROM campaign_sends WHERE status = 'failed' AND error_message LIKE '%unknown%'";
    assert_eq!(server.db.count(explained), failed);
    assert_eq!(usage(server, &ana.account), format!("{sent} 0"));
    assert_eq!(ended(ana, id), if failed == 0 { "completed" } else { "partial" });
}

/// Every connection of the server breaks at once; how many there were, once the database has let go of all of them.
fn cut(server: &Server) -> usize {
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
    until("all are gone", || server.db.count(&left) == 0);
    broken.len()
}

/// Requests that a slow machine refused: no connection was opened, or became free, within its time.
fn timed_out(server: &Server) -> usize {
    let log = server.log();
    let is_one = |line: &&str| line.contains("request found") && line.contains("Timeout occurred");
    log.lines().filter(is_one).count()
}

/// F07.
#[test]
fn connections_that_are_cut_over_and_over_cost_one_request_each_and_no_more() {
    const POOL: usize = 8;
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", POOL.to_string()));
    let (ana, bia) = (server.owner(), server.owner());
    ana.tag("only-ana");
    let requests = [ana.request("POST", "/api/tags"), bia.request("POST", "/api/tags")];
    let load = Load::start(&requests, 8);
    let mut broken = 0;
    for round in 0..20 {
        broken += cut(&server);
        let done = load.done();
        until("everybody has asked again", || load.done() >= done + 4 * POOL);
        // All rounds together: what broke late in one is told in the next.
        let refused = load.refused();
        let excused = if refused > broken { timed_out(&server) } else { 0 };
        assert!(
            refused <= broken + excused,
            "round {round}: {refused} refused, {broken} broken, {excused} timed out"
        );
    }
    load.end(&server);
    for _ in 0..40 {
        let of_bia = bia.get("/api/tags?limit=100").ok();
        assert!(!of_bia.to_string().contains("only-ana"), "{of_bia}");
        ana.get("/api/tags").ok();
    }
}
