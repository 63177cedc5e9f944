//! Downloads of messages' files: a large one, a slow one and one that breaks.

use recado_simulators::whatsapp::{FileSettings, Inbound, InboundFile};
use serde_json::Value;

use crate::conversations::open_conversation;
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Server, eventually};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";

/// The most additional memory of a download, in bytes.
const MAX_EXTRA: u64 = 8 << 20;

/// Receives a message with this file, and returns the message's WhatsApp id.
fn receive(user: &User<'_>, file: FileSettings) -> String {
    let id = user.server.whatsapp.add_file(file);
    let file = InboundFile {
        kind: "video".into(),
        id,
        mime_type: "video/mp4".into(),
    };
    user.server.whatsapp.inbound(&Inbound {
        file: Some(file),
        ..Inbound::text(NUMBER, ANA, "")
    })
}

fn file(user: &User<'_>, conversation: &str, wamid: &str) -> Option<Value> {
    let page = user
        .get(&format!("/api/conversations/{conversation}/messages?limit=100"))
        .ok();
    let messages = page["data"].as_array().unwrap().iter();
    let mut found = messages.filter(|message| message["wa_message_id"] == wamid);
    found.next().map(|message| message["media"][0].clone())
}

#[track_caller]
fn wait_until_ready(user: &User<'_>, conversation: &str, wamid: &str) -> Value {
    eventually("the file is ready", || {
        file(user, conversation, wamid).filter(|file| file["state"] == "ready")
    })
}

#[test]
fn large_file_is_fetched_in_bounded_memory() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let zeros = |bytes: u64| FileSettings {
        zeros: Some(bytes),
        ..FileSettings::default()
    };
    // Warm-up: one-time allocations must not count.
    let small = receive(&ana, zeros(1_000_000));
    wait_until_ready(&ana, &conversation, &small);
    let before = server.reset_peak_memory();
    let large = receive(&ana, zeros(100_000_000));
    let ready = wait_until_ready(&ana, &conversation, &large);
    let extra = server.peak_memory().saturating_sub(before);
    assert_eq!(ready["size"], 100_000_000);
    println!("{} KiB more", extra >> 10);
    assert!(extra <= MAX_EXTRA, "{extra} bytes more");
}

#[test]
fn slow_and_broken_downloads_end_with_the_whole_file() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let content = b"The quick brown fox jumps over the lazy dog.";
    let of = || FileSettings::of(content, "video/mp4");
    let slow = receive(
        &ana,
        FileSettings {
            drip_ms: Some(100),
            ..of()
        },
    );
    let broken = receive(&ana, FileSettings { cut_off: 1, ..of() });
    let plain = receive(&ana, of());
    // A slow file delays neither messages nor other files.
    let first = wait_until_ready(&ana, &conversation, &plain);
    let waiting = file(&ana, &conversation, &slow).unwrap();
    assert_eq!(waiting["state"], "pending");
    for wamid in [slow, broken] {
        let ready = wait_until_ready(&ana, &conversation, &wamid);
        assert_eq!((&ready["sha256"], &ready["size"]), (&first["sha256"], &first["size"]));
    }
    assert_eq!(server.media.files().len(), 3, "nothing of the broken attempt is left");
}
