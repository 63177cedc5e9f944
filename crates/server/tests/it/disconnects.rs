//! Clients that hang up at any moment, inside whatever the server does for them.
//!
//! `RECADO_RUNS` (clients) and `RECADO_SEED` make the test longer, and another one.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;

use crate::harness::client::connect;
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, until};

const THREADS: usize = 12;

/// One of the two tenants: what its requests need, and what none of the other's answers may hold.
struct Side {
    token: String,
    account: String,
    contact: String,
    campaign: String,
    tag: String,
    mark: &'static str,
}

impl Side {
    fn of(user: &User<'_>, mark: &'static str) -> Self {
        Self {
            token: user.token.clone(),
            account: user.account.clone(),
            contact: user.contact(mark, &phone(90_000)),
            campaign: user.campaign(json!({ "name": mark })),
            tag: user.tag(mark),
            mark,
        }
    }

    /// A request as bytes; the phone of the contact that it makes, if it makes one.
    fn request(&self, number: usize, rng: &mut TestRng) -> (Vec<u8>, Option<String>) {
        let made = phone(number);
        let (contact, campaign, mark) = (&self.contact, &self.campaign, self.mark);
        let (line, media_type, body) = match rng.below(8) {
            0 => ("GET /api/contacts?limit=100".to_owned(), "", String::new()),
            1 => (format!("GET /api/campaigns/{campaign}"), "", String::new()),
            2 => {
                let tags = json!({ "tag_ids": [self.tag] }).to_string();
                (format!("PUT /api/contacts/{contact}/tags"), "application/json", tags)
            }
            3 => {
                let changed = json!({ "name": mark, "attributes": { "n": number } }).to_string();
                (format!("PUT /api/contacts/{contact}"), "application/json", changed)
            }
            4 => {
                let file = format!("name,phone,tags\n{mark},{made},{mark}\n");
                ("POST /api/contacts/import".to_owned(), "text/csv", file)
            }
            _ => {
                let body = json!({ "name": mark, "phone": made, "tag_ids": [self.tag] }).to_string();
                ("POST /api/contacts".to_owned(), "application/json", body)
            }
        };
        let makes = line.starts_with("POST").then_some(made);
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nX-Account-Id: {}\r\nConnection: close\r\n",
            self.token, self.account
        );
        let length = format!(
            "Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        (format!("{head}{length}").into_bytes(), makes)
    }
}

/// Sends one request and perhaps hangs up; the phone that the server said it has kept.
fn client(port: u16, sides: &[Side; 2], seed: u64, number: usize) -> Option<(usize, String)> {
    let mut rng = TestRng::of(seed, u64::try_from(number).unwrap());
    let own = usize::try_from(rng.below(2)).unwrap();
    let (request, made) = sides[own].request(number, &mut rng);
    let mut stream = connect(port);
    stream.set_nodelay(true).unwrap();
    let kind = rng.below(4);
    let sent = match kind {
        0 => usize::try_from(rng.below(request.len().try_into().unwrap())).unwrap(),
        _ => request.len(),
    };
    stream.write_all(&request[..sent]).unwrap();
    let moment = Duration::from_micros(rng.below(6000));
    match kind {
        // In the middle of the request, and at any moment of its work: hung up for good.
        0 | 1 => std::thread::sleep(moment),
        // Done with speaking, still listening.
        2 => stream.shutdown(Shutdown::Write).unwrap(),
        _ => {}
    }
    let mut answer = Vec::new();
    match kind {
        0 | 1 => {
            stream.set_nonblocking(true).unwrap();
            let mut buffer = [0; 65_536];
            if let Ok(read) = stream.read(&mut buffer) {
                answer.extend_from_slice(&buffer[..read]);
            }
        }
        _ => drop(stream.read_to_end(&mut answer)),
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    for foreign in [&sides[1 - own].account, sides[1 - own].mark, &sides[1 - own].contact] {
        assert!(!answer.contains(foreign), "client {number} read of {foreign}: {answer}");
    }
    let status = answer.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    if kind == 3 {
        // So many at once are more imports than an account may have under way.
        let is_import = request.starts_with(b"POST /api/contacts/import");
        let is_done = matches!(status, Some(200 | 201)) || (is_import && status == Some(429));
        assert!(is_done, "client {number}: {answer}");
    }
    made.filter(|_| matches!(status, Some(200 | 201)))
        .map(|made| (own, made))
}

/// F08.
#[test]
fn clients_that_hang_up_anywhere_leave_nothing_behind_and_learn_nothing() {
    let (clients, seed) = (usize::try_from(runs(1000)).unwrap(), seed(1));
    println!("{clients} clients of seed {seed}");
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let (ana, bia) = (server.owner(), server.owner());
    let sides = [Side::of(&ana, "AnaOnly"), Side::of(&bia, "BiaOnly")];
    let kept = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sides, kept, port) = (&sides, &kept, server.port());
            scope.spawn(move || {
                for number in (thread..clients).step_by(THREADS) {
                    if let Some(told) = client(port, sides, seed, number) {
                        kept.lock().unwrap().push(told);
                    }
                }
            });
        }
    });
    until("no connection is left inside a transaction", || {
        let open = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                    AND application_name LIKE 'recado %' AND state <> 'idle'";
        server.db.count(open) == 0
    });
    let kept = kept.into_inner().unwrap();
    assert!(kept.len() > clients / 8, "{} writes were acknowledged", kept.len());
    for (own, side) in sides.iter().enumerate() {
        let account = &side.account;
        let rows = server
            .db
            .rows(&format!("SELECT phone FROM contacts WHERE account_id = '{account}'"));
        let there: BTreeSet<String> = rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect();
        let lost: Vec<_> = kept
            .iter()
            .filter(|(of, phone)| *of == own && !there.contains(phone))
            .collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        let foreign = format!(
            "FROM contacts WHERE account_id = '{account}' AND name <> '{}'",
            side.mark
        );
        assert_eq!(server.db.count(&foreign), 0);
    }
    // Every connection of every thread serves whoever comes next.
    std::thread::scope(|scope| {
        for number in 0..40 {
            let user = if number % 2 == 0 { &ana } else { &bia };
            let mark = sides[number % 2].mark;
            let request = user.request("GET", "/api/contacts?limit=100");
            scope.spawn(move || {
                let list = request.send().ok();
                assert!(
                    list["data"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .all(|contact| contact["name"] == mark)
                );
            });
        }
    });
}
