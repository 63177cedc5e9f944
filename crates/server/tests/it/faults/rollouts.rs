//! Rolling updates: servers are replaced and the schema grows under load, and no request fails.
//!
//! `RECADO_RUNS` sets the number of replaced servers.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::Request;
use crate::harness::process::Process;
use crate::harness::rng::runs;
use crate::harness::runs::{calls, final_status, usage, without_statuses};
use crate::harness::users::User;
use crate::harness::{Server, until};

/// A load balancer: it probes `/readyz` and sends requests round-robin to the ready servers. It retries a request only
/// if the connection is refused.
#[derive(Default)]
pub(super) struct Balancer {
    pub(super) ports: RwLock<Vec<u16>>,
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
            let ports = self.ports.read().unwrap().clone();
            let is_ready = |port: &u16| {
                let reply = Request::new(*port, "GET", "/readyz").try_send();
                reply.is_ok_and(|reply| reply.status == 200)
            };
            *self.ready.write().unwrap() = ports.into_iter().filter(is_ready).collect();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn next_ready(&self) -> Option<u16> {
        let ready = self.ready.read().unwrap();
        ready
            .get(self.next.fetch_add(1, Ordering::SeqCst) % ready.len().max(1))
            .copied()
    }

    fn send(&self, token: &str, number: usize) {
        let request = |port| {
            let request = Request::new(port, "GET", "/api/contacts?limit=5").bearer(token);
            if number.is_multiple_of(3) {
                let tag = json!({ "name": format!("t{number}") });
                return request.method("POST").path("/api/tags").json(&tag);
            }
            request
        };
        let began = Instant::now();
        let failure = loop {
            let Some(port) = self.next_ready() else {
                break "no server is ready".to_owned();
            };
            match request(port).try_send() {
                Ok(reply) if [200, 201].contains(&reply.status) => {
                    self.served.fetch_add(1, Ordering::SeqCst);
                    let mut slowest = self.slowest.lock().unwrap();
                    *slowest = slowest.max(began.elapsed());
                    return;
                }
                Ok(reply) => break format!("{} {}", reply.status, reply.text),
                // Connection refused: the server did not receive the request, so a retry is safe.
                Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => break error.to_string(),
            }
        };
        self.failed.lock().unwrap().push(failure);
    }

    fn load(&self, token: &str, first: usize) {
        for number in (first..).step_by(10) {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.send(token, number);
        }
    }

    /// Waits until `more` further requests have succeeded.
    fn wait_for_served(&self, more: usize) {
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

    /// Sends requests to a server, too, as soon as it is ready.
    pub(super) fn admit(&self, port: u16) {
        self.ports.write().unwrap().push(port);
        until("the new server is ready", || self.ready.read().unwrap().contains(&port));
        self.wait_for_served(20);
    }

    /// Forgets a server that has stopped.
    pub(super) fn forget(&self, port: u16) {
        self.ports.write().unwrap().retain(|known| *known != port);
        self.wait_for_served(20);
    }

    /// Starts a new server, then stops the old one.
    fn replace(&self, server: &Server, old: &mut Option<(u16, Process)>) {
        let process = server.spawn(&["serve"]);
        let port = process.port();
        self.admit(port);
        let leaving = old.replace((port, process));
        let (stopped_port, code) = match leaving {
            Some((port, mut process)) => (port, process.stop()),
            None => (server.port(), server.stop()),
        };
        assert_eq!(code, Some(0));
        self.forget(stopped_port);
    }

    /// Sends requests of these users while `change` runs. Asserts that none failed, and returns what `change` returns.
    pub(super) fn during<T>(&self, tokens: [&str; 2], change: impl FnOnce() -> T) -> T {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| self.probe());
            until("a server is ready", || !self.ready.read().unwrap().is_empty());
            for (at, token) in tokens.into_iter().cycle().take(4).enumerate() {
                scope.spawn(move || self.load(token, at * 1_000_000));
            }
            // A panic must not keep the other threads running.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
            self.stop.store(true, Ordering::SeqCst);
            done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        });
        let failed = self.failed.lock().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        done
    }
}

/// Adds columns, constraints and an index that this version does not know, as the migrations of a next version do.
fn expand(server: &Server, part: u64) {
    let statements = [
        format!("ALTER TABLE contacts ADD COLUMN later_{part} text"),
        format!("ALTER TABLE tags ADD COLUMN later_{part} integer NOT NULL DEFAULT 0"),
        format!("ALTER TABLE campaign_sends ADD COLUMN later_{part} text"),
        format!("CREATE INDEX CONCURRENTLY later_{part} ON contacts (account_id, later_{part})"),
        format!("ALTER TABLE contacts ADD CONSTRAINT later_{part} CHECK (later_{part} <> '') NOT VALID"),
        format!("ALTER TABLE contacts VALIDATE CONSTRAINT later_{part}"),
    ];
    // A statement that would block requests for longer fails.
    server.db.run("SET lock_timeout = '2s'");
    for statement in statements {
        server.db.run(&statement);
    }
}

/// Asserts that the servers together called every recipient exactly once.
fn assert_called_once_each(ana: &User<'_>, request: &Request, id: &str, contacts: usize) {
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
fn rollout_with_growing_schema_fails_no_request() {
    let runs = runs(2);
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "20"));
    let (ana, bia) = (server.owner(), server.owner());
    let contacts = 200;
    ana.profile();
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    ana.send(&id);
    let balancer = Balancer::default();
    balancer.ports.write().unwrap().push(server.port());
    let last = balancer.during([&ana.token, &bia.token], || {
        let mut old = None;
        for part in 0..runs {
            balancer.wait_for_served(40);
            expand(&server, part);
            balancer.replace(&server, &mut old);
        }
        old
    });
    let (served, slowest) = (
        balancer.served.load(Ordering::SeqCst),
        *balancer.slowest.lock().unwrap(),
    );
    println!("{served} requests over {runs} replacements, the slowest {slowest:?}");
    let (port, _process) = last.unwrap();
    let request = Request::new(port, "GET", &format!("/api/campaigns/{id}")).bearer(&ana.token);
    assert_called_once_each(&ana, &request, &id, contacts);
}

/// R10: a migration without pending steps delays no request, and a run completes during it.
#[test]
fn repeated_migration_during_a_run_disturbs_nothing() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "10"));
    let ana = server.owner();
    ana.profile();
    ana.contacts(40);
    let id = ana.plain_campaign();
    ana.send(&id);
    for _ in 0..3 {
        assert_eq!(server.spawn(&["migrate"]).wait(), Some(0));
        ana.get("/api/contacts?limit=1").ok();
    }
    assert_eq!(final_status(&ana, &id), "completed");
}
