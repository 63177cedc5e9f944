//! Acknowledged writes survive a crash of the server, the database, or both.
//!
//! `RECADO_RUNS` sets the number of crashes (200 for a release), `RECADO_SEED` the seed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::harness::client::Request;
use crate::harness::cluster::Cluster;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::users::phone;
use crate::harness::{Server, until};

/// Writes continuously, whatever the responses are, and records the acknowledged names.
fn write_until_stopped(requests: &[Request; 2], first: usize, acknowledged: &Mutex<Vec<String>>, stop: &AtomicBool) {
    for number in (first..).step_by(4) {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("w{number}");
        let [tags, contacts] = requests;
        let request = match number % 8 {
            0..4 => tags.clone().json(&json!({ "name": name })),
            _ => contacts.clone().json(&json!({ "name": name, "phone": phone(number) })),
        };
        match request.try_send() {
            Ok(reply) if reply.status == 201 => acknowledged.lock().unwrap().push(name),
            Ok(reply) => assert_eq!(reply.status, 503, "{}", reply.text),
            // No server listens: it was killed.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Crashes and restarts the server, the database, or both.
fn crash_and_restart(server: &Server, cluster: &Cluster, rng: &mut TestRng) {
    std::thread::sleep(rng.duration_below(100_000));
    let kind = rng.below(3);
    if kind != 0 {
        cluster.crash();
    }
    if kind != 1 {
        server.kill();
    }
    if kind != 0 {
        cluster.launch();
        until("the database accepts connections", || server.db.try_reconnect());
    }
    if kind != 1 {
        server.run(&["serve"]);
    }
    until("the server is ready", || {
        server.get("/readyz").try_send().is_ok_and(|reply| reply.status == 200)
    });
}

/// R2.
#[test]
fn acknowledged_writes_survive_server_and_database_crashes() {
    let (runs, seed) = (runs(4), seed(20_261_122));
    let cluster = Cluster::start();
    let server = Server::start_on(cluster.database(), &crate::harness::runs::without_statuses());
    let ana = server.owner();
    let requests = [ana.request("POST", "/api/tags"), ana.request("POST", "/api/contacts")];
    let (acknowledged, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (requests, acknowledged, stop) = (&requests, &acknowledged, &stop);
            scope.spawn(move || write_until_stopped(requests, first, acknowledged, stop));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for run in 0..runs {
                println!("crash {run} of seed {seed}");
                let before = acknowledged.lock().unwrap().len();
                crash_and_restart(&server, &cluster, &mut TestRng::of(seed, run));
                until("writes succeed again", || {
                    acknowledged.lock().unwrap().len() > before + 40
                });
            }
        }));
        stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    let rows = server
        .db
        .rows("SELECT name FROM tags UNION ALL SELECT name FROM contacts");
    let stored: BTreeSet<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let acknowledged = acknowledged.into_inner().unwrap();
    let lost: Vec<&String> = acknowledged.iter().filter(|name| !stored.contains(*name)).collect();
    println!("{} acknowledged writes over {runs} crashes", acknowledged.len());
    assert!(lost.is_empty(), "acknowledged writes were lost: {lost:?}");
    assert!(acknowledged.len() >= usize::try_from(runs).unwrap() * 40);
}
