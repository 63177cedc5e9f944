//! What was acknowledged is there, whoever dies right after: the server, the database, or both.
//!
//! `RECADO_RUNS` (deaths; 200 of them are a release's proof) and `RECADO_SEED` make the test longer, and another one.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::harness::client::Request;
use crate::harness::cluster::Cluster;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::users::phone;
use crate::harness::{Server, until};

/// Somebody who writes all the time, whatever is answered, and remembers what was acknowledged.
fn write(ask: &[Request; 2], first: usize, kept: &Mutex<Vec<String>>, stop: &AtomicBool) {
    for number in (first..).step_by(4) {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("w{number}");
        let [tags, contacts] = ask;
        let request = match number % 8 {
            0..4 => tags.clone().json(&json!({ "name": name })),
            _ => contacts.clone().json(&json!({ "name": name, "phone": phone(number) })),
        };
        match request.try_send() {
            Ok(reply) if reply.status == 201 => kept.lock().unwrap().push(name),
            Ok(reply) => assert_eq!(reply.status, 503, "{}", reply.text),
            // Nobody listens: the server has died.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// The server, the database, or both at once.
fn death(server: &Server, cluster: &Cluster, rng: &mut TestRng) {
    std::thread::sleep(rng.moment(100_000));
    let kind = rng.below(3);
    if kind != 0 {
        cluster.crash();
    }
    if kind != 1 {
        server.kill();
    }
    if kind != 0 {
        cluster.launch();
        until("the database is back", || server.db.try_reconnect());
    }
    if kind != 1 {
        server.run(&["serve"]);
    }
    until("it is ready", || {
        server.get("/readyz").try_send().is_ok_and(|reply| reply.status == 200)
    });
}

/// R2.
#[test]
fn what_was_acknowledged_survives_the_death_of_the_server_and_of_the_database() {
    let (runs, seed) = (runs(4), seed(20_261_122));
    let cluster = Cluster::start();
    let server = Server::start_on(cluster.database(), &crate::harness::runs::silent());
    let ana = server.owner();
    let ask = [ana.request("POST", "/api/tags"), ana.request("POST", "/api/contacts")];
    let (kept, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (ask, kept, stop) = (&ask, &kept, &stop);
            scope.spawn(move || write(ask, first, kept, stop));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for run in 0..runs {
                println!("death {run} of seed {seed}");
                let before = kept.lock().unwrap().len();
                death(&server, &cluster, &mut TestRng::of(seed, run));
                until("somebody is served again", || kept.lock().unwrap().len() > before + 40);
            }
        }));
        stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    let rows = server
        .db
        .rows("SELECT name FROM tags UNION ALL SELECT name FROM contacts");
    let there: BTreeSet<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
    let kept = kept.into_inner().unwrap();
    let lost: Vec<&String> = kept.iter().filter(|name| !there.contains(*name)).collect();
    println!("{} acknowledged over {runs} deaths", kept.len());
    assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
    assert!(kept.len() >= usize::try_from(runs).unwrap() * 40);
}
