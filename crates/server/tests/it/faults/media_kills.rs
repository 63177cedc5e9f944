//! Files of inbound messages, while server, file store and WhatsApp fail at random: every file that WhatsApp still has
//! becomes ready once, with the right bytes, and no message is lost, late or stored twice.
//!
//! `RECADO_RUNS` sets the number of rounds (400 for a release, about an hour), `RECADO_SEED` the seed, which a failure
//! prints.

use std::collections::BTreeMap;
use std::thread;

use recado_simulators::whatsapp::{
    FileSettings, Inbound, InboundBatch, InboundFile, On, WhatsappFault, WhatsappFaultKind,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::bucket::{Bucket, BucketFault};
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, Server, text, until};

/// Rounds by default.
const ROUNDS: u64 = 2;

/// Kills per round.
const KILLS: u64 = 4;

/// People who send files.
const SENDERS: u64 = 3;

/// Callbacks before each kill, with one to three messages each.
const CALLBACKS: u64 = 4;

/// The account's numbers. WhatsApp answers only so many failed requests of each number an hour.
const NUMBERS: [&str; 2] = ["106500000001", "106500000002"];

/// The file store of a round.
enum Store {
    Directory,
    Bucket(Bucket),
}

impl Store {
    fn start(round: u64) -> (Self, Server) {
        if round.is_multiple_of(2) {
            return (Self::Directory, Server::start(without_statuses()));
        }
        let (bucket, mut options) = (Bucket::start(), without_statuses());
        options.env.extend(bucket.variables());
        (Self::Bucket(bucket), Server::start(options))
    }

    fn break_down(&self, server: &Server, rng: &mut TestRng) {
        match self {
            // The directory is gone: a mount that was lost.
            Self::Directory => {
                let path = server.media.path();
                std::fs::rename(path, path.with_extension("away")).unwrap();
                std::fs::write(path, "").unwrap();
            }
            Self::Bucket(bucket) => {
                bucket.set_fault(Some(match rng.below(7) {
                    0 => BucketFault::Status500,
                    1 => BucketFault::Reset,
                    2 => BucketFault::NoResponse,
                    3 => BucketFault::ResetAfterwards,
                    _ => BucketFault::Slow,
                }));
            }
        }
    }

    fn repair(&self, server: &Server) {
        match self {
            Self::Directory => {
                let (path, away) = (server.media.path(), server.media.path().with_extension("away"));
                if away.exists() {
                    std::fs::remove_file(path).unwrap();
                    std::fs::rename(away, path).unwrap();
                }
            }
            Self::Bucket(bucket) => bucket.set_fault(None),
        }
    }

    /// The number of files that the store shows.
    fn count(&self, server: &Server) -> usize {
        match self {
            Self::Bucket(bucket) => bucket.files().len(),
            // The names of files that are being written end with a number.
            Self::Directory => server.media.files().iter().filter(|name| !name.contains('#')).count(),
        }
    }
}

/// A file that WhatsApp has, or has no more.
struct SentFile {
    content: Vec<u8>,
    is_gone: bool,
}

/// What was sent to a number: by the id of the message, its file if it has one.
type Sent = BTreeMap<String, Option<SentFile>>;

fn content(rng: &mut TestRng, bytes: u64) -> Vec<u8> {
    let mut content = String::new();
    while content.len() < usize::try_from(bytes).unwrap() {
        content.push_str(&format!("{:016x}", rng.below(u64::MAX)));
    }
    content.into_bytes()
}

/// Adds a file whose requests fail for a while, and returns its media id.
fn add_file(server: &Server, rng: &mut TestRng, file: &SentFile) -> String {
    let mut settings = FileSettings::of(&file.content, "text/plain");
    if file.is_gone {
        settings.missing = u32::MAX;
    }
    let mut faults = Vec::new();
    for _ in 0..rng.below(3) {
        match rng.below(9) {
            0 => settings.missing = settings.missing.saturating_add(1),
            1 => settings.wrong_hashes = 1,
            2 => settings.wrong_bytes = 1,
            3 => settings.cut_off += 1,
            4 if file.content.len() < 100 => settings.drip_ms = Some(20),
            4 | 5 => settings.delay_ms = 700,
            6 => faults.push(WhatsappFaultKind::EmptyStatus { http_status: 500 }),
            7 => faults.push(WhatsappFaultKind::Hang { ms: 1500 }),
            _ => faults.push(WhatsappFaultKind::AcceptThenReset),
        }
    }
    let id = server.whatsapp.add_file(settings);
    let faults = faults.into_iter().map(|kind| WhatsappFault::of(On::Number, kind));
    server.whatsapp.script(faults.map(|fault| fault.for_id(&id)).collect());
    id
}

/// Sends a callback with one to three messages, once or several times.
fn send_callback(server: &Server, rng: &mut TestRng, sent: &mut Sent) {
    let number = NUMBERS[usize::try_from(rng.below(2)).unwrap()];
    let (mut messages, mut files) = (Vec::new(), Vec::new());
    for _ in 0..1 + rng.below(3) {
        let from = phone(usize::try_from(rng.below(SENDERS)).unwrap());
        let bytes = [60, 3000, 400_000][usize::try_from(rng.below(3)).unwrap()];
        let file = (rng.below(5) > 0).then(|| SentFile {
            content: content(rng, bytes),
            is_gone: rng.below(12) == 0,
        });
        let announced = file.as_ref().map(|file| InboundFile {
            kind: "document".into(),
            id: add_file(server, rng, file),
            mime_type: "text/plain".into(),
        });
        messages.push(Inbound {
            file: announced,
            ..Inbound::text(number, &from, "Oi")
        });
        files.push(file);
    }
    let ids = server.whatsapp.inbound_batch(&InboundBatch {
        phone_number_id: number.to_owned(),
        messages,
        reversed: rng.below(2) == 1,
        repeated: u32::try_from(rng.below(3)).unwrap(),
    });
    sent.extend(ids.into_iter().zip(files));
}

/// Makes everything due that waits for its next attempt.
fn make_due(server: &Server) {
    server.db.run(
        "UPDATE whatsapp_media_failures SET failed_at = failed_at - interval '1 hour';
         UPDATE message_media SET due_at = now() WHERE state = 'pending' AND claim_id IS NULL AND due_at > now();
         UPDATE whatsapp_callbacks SET due_at = now() WHERE due_at > now() + interval '1 second'",
    );
}

/// Expires the leases of all files that are being fetched. The next free worker takes these files first.
fn expire_file_leases(server: &Server) {
    server.db.run(
        "UPDATE message_media SET due_at = now() - interval '1 minute'
         WHERE state = 'pending' AND claim_id IS NOT NULL",
    );
}

/// Sends callbacks while server and store fail, `KILLS` times.
fn run_with_kills(server: &Server, store: &Store, rng: &mut TestRng) -> Sent {
    let (mut sent, mut second) = (Sent::new(), None);
    for kill in 1..=KILLS {
        store.repair(server);
        if rng.below(4) > 0 {
            store.break_down(server, rng);
        }
        for _ in 0..CALLBACKS {
            send_callback(server, rng, &mut sent);
            thread::sleep(rng.duration_below(100_000));
        }
        // Also a worker that lives may lose its lease.
        let expires = rng.below(2) == 1;
        for _ in 0..2 {
            thread::sleep(rng.duration_below(300_000));
            make_due(server);
            if expires {
                expire_file_leases(server);
            }
        }
        thread::sleep(rng.duration_below(200_000));
        server.kill();
        drop(second.take());
        // A server does not start without its directory; a bucket may be away.
        if kill == KILLS || matches!(store, Store::Directory) {
            store.repair(server);
        }
        server.run(&["serve"]);
        second = (rng.below(2) == 1).then(|| server.sibling());
        expire_file_leases(server);
        make_due(server);
    }
    wait_until_all_ready(server, &sent);
    sent
}

fn wait_until_all_ready(server: &Server, sent: &Sent) {
    assert!(server.whatsapp.wait_idle(DEADLINE), "the callbacks were not accepted");
    until("the callbacks are applied", || {
        make_due(server);
        server.db.count("FROM whatsapp_callbacks") == 0
    });
    let gone = sent.values().flatten().filter(|file| file.is_gone).count();
    until("every file that WhatsApp has is ready", || {
        make_due(server);
        thread::sleep(std::time::Duration::from_millis(100));
        server.db.count("FROM message_media WHERE state <> 'ready'") <= i64::try_from(gone).unwrap()
    });
    server.db.wait_for_outbox();
}

/// All entries of a list.
fn list(user: &User<'_>, path: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = user.get(&format!("{path}{cursor}")).expect(200);
        // Some lists are an object within `data`.
        if page["data"].is_object() {
            page = page["data"].take();
        }
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        if page["hasMore"] != true {
            return all;
        }
        cursor = format!("&cursor={}", text(&page["nextCursor"]));
    }
}

/// The items of all events of a kind by the id of their message, which this field holds.
fn events(user: &User<'_>, kind: &str, field: &str) -> BTreeMap<String, Vec<Value>> {
    let mut by_message = BTreeMap::<String, Vec<Value>>::new();
    for event in list(user, &format!("/api/webhooks/events?limit=100&type={kind}")) {
        let id = text(&event["data"][field]);
        by_message.entry(id).or_default().push(event["data"].clone());
    }
    by_message
}

/// Asserts that the message's file is ready, has the right bytes, and was reported once; or that it waits.
fn assert_file(ana: &User<'_>, file: &SentFile, media: &Value, ready: &[Value]) {
    if file.is_gone {
        assert_eq!((&media["state"], ready.len()), (&json!("pending"), 0), "{media}");
        return;
    }
    let sha256 = hex::encode(Sha256::digest(&file.content));
    assert_eq!(
        (&media["state"], &media["sha256"], &media["size"]),
        (&json!("ready"), &json!(sha256), &json!(file.content.len())),
        "{media}"
    );
    let served = ana.get(&format!("/api/media/{}", text(&media["id"])));
    assert_eq!(served.status, 200, "{media}");
    assert_eq!(
        hex::encode(Sha256::digest(served.text.as_bytes())),
        sha256,
        "wrong bytes: {media}"
    );
    let reported: Vec<&Value> = ready.iter().map(|event| &event["media"]).collect();
    assert_eq!(reported, [media], "not reported once");
}

/// Asserts each message once, each file of it ready with the right bytes, and one event for each.
fn assert_nothing_lost(ana: &User<'_>, sent: &Sent) -> usize {
    let (mut messages, mut ready_files) = (BTreeMap::new(), 0);
    for conversation in list(ana, "/api/conversations?limit=100") {
        let id = text(&conversation["id"]);
        for message in list(ana, &format!("/api/conversations/{id}/messages?limit=100")) {
            let wamid = text(&message["wa_message_id"]);
            assert!(
                messages.insert(wamid, message.clone()).is_none(),
                "stored twice: {message}"
            );
        }
    }
    assert!(messages.keys().eq(sent.keys()), "messages are missing or unknown");
    let received = events(ana, "message.received", "id");
    let ready = events(ana, "message.media_ready", "message_id");
    assert_eq!(received.len(), sent.len());
    for (wamid, file) in sent {
        let message = &messages[wamid];
        let id = text(&message["id"]);
        assert_eq!(received[&id].len(), 1, "{wamid} was reported twice");
        let ready = ready.get(&id).map_or(&[][..], Vec::as_slice);
        match file {
            None => assert_eq!((&message["media"], ready.len()), (&Value::Null, 0)),
            Some(file) => {
                assert_file(ana, file, &message["media"][0], ready);
                ready_files += usize::from(!file.is_gone);
            }
        }
    }
    ready_files
}

/// F41d.
#[test]
fn inbound_files_survive_failures_of_server_store_and_whatsapp() {
    let (rounds, seed) = (runs(ROUNDS), seed(20_261_129));
    for round in 0..rounds {
        println!("round {round} of seed {seed}");
        let (store, server) = Store::start(round);
        let mut rng = TestRng::of(seed, round);
        let ana = server.owner();
        for number in NUMBERS {
            ana.profile_at(number);
        }
        let all_events = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
        ana.post("/api/webhooks", all_events).created();
        let sent = run_with_kills(&server, &store, &mut rng);
        let ready = assert_nothing_lost(&ana, &sent);
        let left = store.count(&server) - ready;
        println!(
            "{} messages, {ready} files are ready, {left} files are left",
            sent.len()
        );
    }
}
