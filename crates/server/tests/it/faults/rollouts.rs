//! A new version in the place of the old one, under load: nobody sees it happen.
//!
//! `RECADO_RUNS` (servers that are replaced) makes the test longer.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::Request;
use crate::harness::process::{Process, free_port};
use crate::harness::rng::runs;
use crate::harness::runs::{calls, ended, silent, usage};
use crate::harness::users::User;
use crate::harness::{Server, until};

/// What a migration may make anybody wait.
const LONGEST: Duration = Duration::from_secs(20);

/// What stands before the servers, as any load balancer does: it asks whether they are ready, sends requests in turn to
/// those that are, and to another one where a connection is refused. It repeats nothing else.
#[derive(Default)]
struct Balancer {
    known: RwLock<Vec<u16>>,
    ready: RwLock<Vec<u16>>,
    next: AtomicUsize,
    served: AtomicUsize,
    failed: Mutex<Vec<String>>,
    slowest: Mutex<Duration>,
    stop: AtomicBool,
}

impl Balancer {
    fn probe(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            let known = self.known.read().unwrap().clone();
            let is_ready = |port: &u16| {
                let reply = Request::new(*port, "GET", "/readyz").try_send();
                reply.is_ok_and(|reply| reply.status == 200)
            };
            *self.ready.write().unwrap() = known.into_iter().filter(is_ready).collect();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn one_of_the_ready(&self) -> Option<u16> {
        let ready = self.ready.read().unwrap();
        ready
            .get(self.next.fetch_add(1, Ordering::SeqCst) % ready.len().max(1))
            .copied()
    }

    fn ask(&self, token: &str, number: usize) {
        let request = |port| {
            let request = Request::new(port, "GET", "/api/contacts?limit=5").bearer(token);
            if number.is_multiple_of(3) {
                let tag = json!({ "name": format!("t{number}") });
                return request.method("POST").path("/api/tags").json(&tag);
            }
            request
        };
        let began = Instant::now();
        let told = loop {
            let Some(port) = self.one_of_the_ready() else {
                break "nobody is ready".to_owned();
            };
            match request(port).try_send() {
                Ok(reply) if [200, 201].contains(&reply.status) => {
                    self.served.fetch_add(1, Ordering::SeqCst);
                    let mut slowest = self.slowest.lock().unwrap();
                    *slowest = slowest.max(began.elapsed());
                    return;
                }
                Ok(reply) => break format!("{} {}", reply.status, reply.text),
                // The door was closed: nothing was asked.
                Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => break error.to_string(),
            }
        };
        self.failed.lock().unwrap().push(told);
    }

    fn load(&self, token: &str, first: usize) {
        for number in (first..).step_by(10) {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.ask(token, number);
        }
    }

    /// So many more were served.
    fn serves(&self, more: usize) {
        let served = self.served.load(Ordering::SeqCst);
        until("the load goes on", || {
            assert!(
                self.failed.lock().unwrap().is_empty(),
                "{:?}",
                self.failed.lock().unwrap()
            );
            self.served.load(Ordering::SeqCst) >= served + more
        });
    }

    /// One more server; then one fewer.
    fn replace(&self, server: &Server, old: &mut Option<(u16, Process)>) {
        let port = free_port();
        let process = server.spawn(&["serve"], port);
        self.known.write().unwrap().push(port);
        until("the new one is asked", || self.ready.read().unwrap().contains(&port));
        self.serves(20);
        let leaving = old.replace((port, process));
        let (gone, code) = match leaving {
            Some((port, mut process)) => (port, process.stop()),
            None => (server.port(), server.stop()),
        };
        assert_eq!(code, Some(0));
        self.known.write().unwrap().retain(|port| *port != gone);
        self.serves(20);
    }
}

/// What the next version's schema may bring while this one serves: columns, tables and indexes that it knows nothing of.
fn expand(server: &Server, part: u64) {
    let statements = [
        format!("ALTER TABLE contacts ADD COLUMN later_{part} text"),
        format!("ALTER TABLE tags ADD COLUMN later_{part} integer NOT NULL DEFAULT 0"),
        format!("ALTER TABLE campaign_sends ADD COLUMN later_{part} text"),
        format!("CREATE INDEX CONCURRENTLY later_{part} ON contacts (account_id, later_{part})"),
        format!("ALTER TABLE contacts ADD CONSTRAINT later_{part} CHECK (later_{part} <> '') NOT VALID"),
        format!("ALTER TABLE contacts VALIDATE CONSTRAINT later_{part}"),
    ];
    server.db.run("SET lock_timeout = '2s'");
    for statement in statements {
        let began = Instant::now();
        server.db.run(&statement);
        assert!(began.elapsed() < LONGEST, "{statement}: {:?}", began.elapsed());
    }
}

/// Everybody was written to once, by whichever server was there.
fn nobody_was_forgotten(ana: &User<'_>, request: &Request, id: &str, contacts: usize) {
    let server = ana.server;
    until("the run ends", || {
        let reply = request.clone().send();
        reply.status == 200 && reply.ok()["status"] == "completed"
    });
    let calls = calls(server);
    assert!(
        calls.len() == contacts && calls.values().all(|calls| *calls == 1),
        "{id}: {calls:?}"
    );
    assert_eq!(usage(server, &ana.account), format!("{contacts} 0"));
}

/// R10, F40g.
#[test]
fn servers_are_replaced_and_the_schema_grows_and_no_request_fails() {
    let runs = runs(2);
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "20"));
    let (ana, bia) = (server.owner(), server.owner());
    let contacts = 200;
    ana.profile();
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    ana.send(&id);
    let balancer = Balancer::default();
    balancer.known.write().unwrap().push(server.port());
    let tokens = [ana.token.clone(), bia.token.clone()];
    let last = std::thread::scope(|scope| {
        scope.spawn(|| balancer.probe());
        until("somebody is ready", || !balancer.ready.read().unwrap().is_empty());
        for first in 0..4 {
            let (balancer, token) = (&balancer, &tokens[first % 2]);
            scope.spawn(move || balancer.load(token, first * 1_000_000));
        }
        // Whatever happens here, the others have to end.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut old = None;
            for part in 0..runs {
                balancer.serves(40);
                expand(&server, part);
                balancer.replace(&server, &mut old);
            }
            old
        }));
        balancer.stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    });
    let failed = balancer.failed.lock().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let (served, slowest) = (
        balancer.served.load(Ordering::SeqCst),
        *balancer.slowest.lock().unwrap(),
    );
    println!("{served} requests over {runs} replacements, the slowest {slowest:?}");
    assert!(slowest < LONGEST + Duration::from_secs(1), "{slowest:?}");
    let (port, _process) = last.unwrap();
    let look = Request::new(port, "GET", &format!("/api/campaigns/{id}")).bearer(&ana.token);
    nobody_was_forgotten(&ana, &look, &id, contacts);
}

/// R10: a migration that has nothing to do disturbs nobody, and a run that nobody interrupts ends as ever.
#[test]
fn migrating_what_is_migrated_waits_for_nobody() {
    let server = Server::start(silent().with("CAMPAIGN_MESSAGE_DELAY_MS", "10"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(40);
    let id = ana.plain_campaign();
    ana.send(&id);
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(server.spawn(&["migrate"], free_port()).wait(), Some(0));
        assert!(began.elapsed() < LONGEST * 2, "{:?}", began.elapsed());
        ana.get("/api/contacts?limit=1").ok();
    }
    assert_eq!(ended(&ana, &id), "completed");
}
