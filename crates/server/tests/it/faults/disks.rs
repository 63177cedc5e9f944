//! A database whose disk is full for a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use recado_testkit::skip::skip;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::cluster::Cluster;
use crate::harness::database::Database;
use crate::harness::runs::{calls, final_status, usage, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, until};

/// A small tmpfs that holds only the tablespace; unmounted and removed when dropped.
struct Disk(TempDir);

impl Disk {
    /// Returns `None` without the permission to mount.
    fn mount(megabytes: u32) -> Option<Self> {
        let directory = TempDir::with_prefix("recado-it-disk-").unwrap();
        let options = format!("size={megabytes}m,mode=0777");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output();
        mounted
            .is_ok_and(|mounted| mounted.status.success())
            .then_some(Self(directory))
    }

    /// Fills all free space and returns the path of the file that occupies it.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let path = self.0.path().join("filler");
        let mut filler = std::fs::File::create(&path).unwrap();
        for size in [1_000_000, 10_000, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0.path()).status().ok();
    }
}

/// The tables without those that workers change in the background.
fn dump_without_background(db: &Database) -> BTreeMap<String, String> {
    let mut dump = db.dump();
    dump.retain(|table, _| {
        ![
            "outbox_events",
            "users",
            "audit_logs",
            "audit_counts",
            "notifications",
            "campaign_queue",
            // A worker resolves the subscription attempts.
            "subscriptions",
            "billing_history",
            "webhook_events",
            "webhook_deliveries",
            "webhook_endpoints",
            "webhook_logs",
        ]
        .contains(&table.as_str())
    });
    dump
}

/// Sends writes that need disk space. Each must succeed or fail as a whole, without internals in the response.
fn try_writes(ana: &User<'_>, round: usize) {
    let large = "x".repeat(900);
    let import: String = (0..400).map(|n| format!("{large}{n},{}\n", phone(1000 + n))).collect();
    let requests = [
        ana.request("POST", "/api/contacts/import")
            .body("text/csv", format!("name,phone\n{import}")),
        ana.request("POST", "/api/segments")
            .json(&json!({ "name": format!("S{round}") })),
        ana.request("POST", "/api/campaigns")
            .json(&json!({ "name": format!("C{round}") })),
    ];
    for request in requests {
        let reply = request.send();
        if reply.status < 300 {
            // The row fitted into a page that already existed.
            continue;
        }
        assert!([500, 503].contains(&reply.status), "{} {}", reply.status, reply.text);
        for inside in ["disk", "space", "extend", "base/", "pg_tblspc", "SQL"] {
            assert!(!reply.text.contains(inside), "{}", reply.text);
        }
    }
}

/// F40d: a real full disk.
#[test]
fn full_disk_rejects_writes_until_space_returns() {
    let Some(disk) = Disk::mount(48) else {
        // `write_rejected_by_full_disk_leaves_nothing` injects the same error without this permission.
        return skip("no permission to mount a tmpfs");
    };
    let cluster = Cluster::start();
    let server = Server::start_on(
        cluster.database_on(disk.0.path()),
        &without_statuses()
            .with("CAMPAIGN_MESSAGE_DELAY_MS", "20")
            .with("SEND_UNKNOWN_TTL", "2s"),
    );
    let ana = server.owner();
    ana.profile();
    let contacts = 120;
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    ana.send(&id);
    until("some messages were sent", || server.whatsapp.counters().accepted >= 20);
    let filler = disk.fill();
    let mut rounds = 0;
    until("writes fail because the disk is full", || {
        try_writes(&ana, rounds);
        rounds += 1;
        server.log().contains("53100") || server.log().to_lowercase().contains("no space left")
    });
    // Reads succeed, and the process is alive.
    ana.get("/api/contacts?limit=1").ok();
    server.get("/healthz").send().ok();
    std::fs::remove_file(filler).unwrap();
    until("writes succeed", || {
        ana.post("/api/tags", json!({ "name": "depois" })).status == 201
    });
    let status = final_status(&ana, &id);
    assert!(["completed", "partial"].contains(&status.as_str()), "{status}");
    let calls = calls(&server);
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    until("no outcome is unknown", || ana.stats(&id)["pending"] == 0);
    let stats = ana.stats(&id);
    assert_eq!(stats["total"], contacts);
    assert_eq!(usage(&server, &ana.account), format!("{} 0", stats["sent"]));
}

/// One request per kind of write, with new resources each time.
fn writes(ana: &User<'_>, number: usize) -> Vec<(&'static str, String, Value)> {
    let (contact, tag) = (ana.contact("C", &phone(1000 + number)), ana.tag(&format!("t{number}")));
    let campaign = ana.plain_campaign();
    let subscribe =
        json!({ "plan": "starter", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "529.982.247-25" });
    let invite = json!({ "email": format!("bia{number}@example.com"), "role": "member" });
    let new_contact = json!({ "name": "D", "phone": phone(2000 + number), "tag_ids": [tag] });
    vec![
        ("POST", "/api/contacts".to_owned(), new_contact),
        (
            "PUT",
            format!("/api/contacts/{contact}"),
            json!({ "name": "E", "tag_ids": [tag] }),
        ),
        ("DELETE", format!("/api/tags/{tag}"), json!({})),
        ("POST", format!("/api/campaigns/{campaign}/execute"), json!({})),
        ("POST", "/api/accounts".to_owned(), json!({ "name": "Outra" })),
        ("POST", "/api/team/invites".to_owned(), invite),
        ("POST", "/api/billing/subscribe".to_owned(), subscribe),
    ]
}

/// The tables to which these requests write.
const WRITTEN_TABLES: &[&str] = &[
    "accounts",
    "account_users",
    "campaign_counter_slots",
    "campaign_queue",
    "campaign_sends",
    "campaigns",
    "contact_counts",
    "contact_tags",
    "contacts",
    "message_usage_slots",
    "outbox_events",
    "subscriptions",
    "tags",
    "team_invites",
];

/// F40d: a trigger injects the error of a full disk into one table after the other.
#[test]
fn write_rejected_by_full_disk_leaves_nothing() {
    let server = Server::start(without_statuses().with("REDIS_URL", "redis://127.0.0.1:1"));
    let ana = server.owner();
    ana.profile();
    // With a subscriber, changes also write events.
    let endpoint = json!({ "name": "CI", "url": "https://example.com/", "events": ["*"] });
    assert_eq!(ana.post("/api/webhooks", endpoint).status, 201);
    server.db.run(
        "UPDATE accounts SET plan = 'scale';
         CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'could not extend file \"base/5/16384\": No space left on device' USING ERRCODE = '53100';
         END $$",
    );
    let mut refused = 0;
    for (number, table) in WRITTEN_TABLES.iter().enumerate() {
        let writes = writes(&ana, number);
        server.db.wait_for_outbox();
        server.db.run(&format!(
            "CREATE TRIGGER no_room AFTER INSERT OR UPDATE OR DELETE ON {table}
               FOR EACH STATEMENT EXECUTE FUNCTION no_room()"
        ));
        for (method, path, body) in writes {
            let before = dump_without_background(&server.db);
            let reply = ana.request(method, &path).json(&body).send();
            // The request does not write to this table.
            if reply.status < 500 {
                continue;
            }
            refused += 1;
            assert!([500, 503].contains(&reply.status), "{table} {path}: {}", reply.text);
            assert!(!reply.text.contains("16384"), "{}", reply.text);
            // A subscription attempt stays until the gateway's state is known.
            if !path.contains("billing") {
                assert_eq!(
                    dump_without_background(&server.db),
                    before,
                    "{table} {path}: something was written"
                );
            }
        }
        server.db.run(&format!("DROP TRIGGER no_room ON {table}"));
    }
    assert!(refused >= 14, "{refused} writes were refused");
    assert_eq!(ana.post("/api/tags", json!({ "name": "depois" })).status, 201);
}
