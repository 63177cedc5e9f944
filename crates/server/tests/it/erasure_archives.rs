//! Erasure of a contact whose sends are in the archive of a campaign.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::erasures::{erase, tables_with, wait_until_done};
use crate::harness::runs::without_statuses;
use crate::harness::{Server, text};
use crate::retention::{archive, ended_campaign, lines, put, run_now, verify};

/// The texts of all files; those that are compressed are expanded.
fn files(server: &Server) -> Vec<String> {
    let paths = server.media.files();
    let read = |path: String| {
        let content = std::fs::read(server.media.path().join(path)).unwrap();
        let mut expanded = String::new();
        match GzDecoder::new(content.as_slice()).read_to_string(&mut expanded) {
            Ok(_) => expanded,
            Err(_) => String::from_utf8_lossy(&content).into_owned(),
        }
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn archive_loses_the_ids_of_the_erased_person() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let campaign = ended_campaign(&ana, 25);
    put(&ana, json!({ "campaign_sends_days": 30 }));
    run_now(&ana);
    let (before, stats) = (archive(&ana, &campaign), ana.stats(&campaign));
    let sends = lines(&before.body);
    let (contact, message) = (text(&sends[11]["contact_id"]), text(&sends[11]["wa_message_id"]));
    assert_eq!(sends.iter().filter(|send| send["contact_id"] == contact).count(), 1);
    assert!(files(&server).iter().any(|file| file.contains(&message)));

    let done = wait_until_done(&ana, &erase(&ana, &contact));

    assert_eq!(done["removed"]["archived_sends"], 1);
    let after = archive(&ana, &campaign);
    assert_ne!(after.header("etag"), before.header("etag"));
    let mut expected = sends;
    (expected[11]["contact_id"], expected[11]["wa_message_id"]) = (Value::Null, Value::Null);
    assert_eq!(lines(&after.body), expected);
    // The archive, and the record of the erasure, which names the contact's id alone.
    let stored = files(&server);
    assert_eq!(stored.len(), 2);
    assert!(stored.iter().all(|file| !file.contains(&message)));
    let named: Vec<&String> = stored.iter().filter(|file| file.contains(&contact)).collect();
    assert!(named.len() == 1 && named[0].contains("requested_at"), "{named:?}");
    server.db.wait_for_outbox();
    assert_eq!(
        tables_with(&server.db.dump(), &[&message.to_lowercase()]),
        Vec::<String>::new()
    );
    assert_eq!(ana.stats(&campaign), stats);
    assert!(verify(&server));
    // An archive without the person keeps its file.
    let stranger = ana.contact("Estranha", "+5511977777777");
    wait_until_done(&ana, &erase(&ana, &stranger));
    assert_eq!(archive(&ana, &campaign).body, after.body);
}
