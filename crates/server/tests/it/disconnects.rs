//! Clients that disconnect at a random time while the server handles their request.
//!
//! `RECADO_RUNS` sets the number of clients, `RECADO_SEED` the sequence of requests.

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

/// Clients by default.
const CLIENTS: u64 = 2000;

/// One of the two accounts: what its requests need, and marker values that the other account must never read.
struct TestAccount {
    token: String,
    account: String,
    contact: String,
    campaign: String,
    tag: String,
    mark: &'static str,
}

impl TestAccount {
    fn new(user: &User<'_>, mark: &'static str) -> Self {
        Self {
            token: user.token.clone(),
            account: user.account.clone(),
            contact: user.contact(mark, &phone(90_000)),
            campaign: user.campaign(json!({ "name": mark })),
            tag: user.tag(mark),
            mark,
        }
    }

    /// A random request as bytes, and the phone number of the contact that it creates, if any.
    fn random_request(&self, number: usize, rng: &mut TestRng) -> (Vec<u8>, Option<String>) {
        let new_phone = phone(number);
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
                let file = format!("name,phone,tags\n{mark},{new_phone},{mark}\n");
                ("POST /api/contacts/import".to_owned(), "text/csv", file)
            }
            _ => {
                let body = json!({ "name": mark, "phone": new_phone, "tag_ids": [self.tag] }).to_string();
                ("POST /api/contacts".to_owned(), "application/json", body)
            }
        };
        let created_phone = line.starts_with("POST").then_some(new_phone);
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nX-Account-Id: {}\r\nConnection: close\r\n",
            self.token, self.account
        );
        let length = format!(
            "Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        (format!("{head}{length}").into_bytes(), created_phone)
    }
}

/// Sends one request and may disconnect. Returns the account's index and phone number of an acknowledged new contact.
fn run_client(port: u16, accounts: &[TestAccount; 2], seed: u64, number: usize) -> Option<(usize, String)> {
    let mut rng = TestRng::of(seed, u64::try_from(number).unwrap());
    let own = usize::try_from(rng.below(2)).unwrap();
    let (request, created_phone) = accounts[own].random_request(number, &mut rng);
    let mut stream = connect(port);
    stream.set_nodelay(true).unwrap();
    let kind = rng.below(4);
    let sent = match kind {
        0 => usize::try_from(rng.below(request.len().try_into().unwrap())).unwrap(),
        _ => request.len(),
    };
    stream.write_all(&request[..sent]).unwrap();
    let delay = Duration::from_micros(rng.below(6000));
    match kind {
        // Disconnects: within the request (0), or while the server handles it (1).
        0 | 1 => std::thread::sleep(delay),
        // Half-closes: stops sending, still reads.
        2 => stream.shutdown(Shutdown::Write).unwrap(),
        _ => {}
    }
    let mut response = Vec::new();
    match kind {
        0 | 1 => {
            stream.set_nonblocking(true).unwrap();
            let mut buffer = [0; 65_536];
            if let Ok(read) = stream.read(&mut buffer) {
                response.extend_from_slice(&buffer[..read]);
            }
        }
        _ => drop(stream.read_to_end(&mut response)),
    }
    let response = String::from_utf8_lossy(&response).into_owned();
    let other = &accounts[1 - own];
    for foreign in [&other.account, other.mark, &other.contact] {
        assert!(
            !response.contains(foreign),
            "client {number} read {foreign}: {response}"
        );
    }
    let status = response.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    if kind == 3 {
        // Concurrent imports may exceed the account's limit on imports.
        let is_import = request.starts_with(b"POST /api/contacts/import");
        let is_done = matches!(status, Some(200 | 201)) || (is_import && status == Some(429));
        assert!(is_done, "client {number}: {response}");
    }
    created_phone
        .filter(|_| matches!(status, Some(200 | 201)))
        .map(|phone| (own, phone))
}

/// F08 of docs/faults.md.
#[test]
fn client_disconnects_leak_no_transaction_and_no_data() {
    let (clients, seed) = (usize::try_from(runs(CLIENTS)).unwrap(), seed(1));
    println!("{clients} clients of seed {seed}");
    let server = Server::start(Options::default().with("DATABASE_POOL_SIZE", "8"));
    let (ana, bia) = (server.owner(), server.owner());
    let accounts = [TestAccount::new(&ana, "AnaOnly"), TestAccount::new(&bia, "BiaOnly")];
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (accounts, acknowledged, port) = (&accounts, &acknowledged, server.port());
            scope.spawn(move || {
                for number in (thread..clients).step_by(THREADS) {
                    if let Some(contact) = run_client(port, accounts, seed, number) {
                        acknowledged.lock().unwrap().push(contact);
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
    let acknowledged = acknowledged.into_inner().unwrap();
    let count = acknowledged.len();
    assert!(count > clients / 8, "{count} writes were acknowledged");
    for (own, test_account) in accounts.iter().enumerate() {
        let account = &test_account.account;
        let rows = server
            .db
            .rows(&format!("SELECT phone FROM contacts WHERE account_id = '{account}'"));
        let stored: BTreeSet<String> = rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect();
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|(owner, phone)| *owner == own && !stored.contains(phone))
            .collect();
        assert!(lost.is_empty(), "acknowledged but not stored: {lost:?}");
        let foreign = format!(
            "FROM contacts WHERE account_id = '{account}' AND name <> '{}'",
            test_account.mark
        );
        assert_eq!(server.db.count(&foreign), 0);
    }
    // No connection keeps the tenant of an earlier request.
    std::thread::scope(|scope| {
        for number in 0..40 {
            let user = if number % 2 == 0 { &ana } else { &bia };
            let mark = accounts[number % 2].mark;
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
