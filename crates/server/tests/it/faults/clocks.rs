//! Clock skew: one server is an hour ahead, one an hour behind. Shared deadlines follow the clocks of the database and
//! Redis.

use std::path::PathBuf;
use std::process::Command;

use recado_testkit::services::own_redis::OwnRedis;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::harness::client::Request;
use crate::harness::process::{Process, own_redis};
use crate::harness::runs::{calls, final_status, usage, without_statuses};
use crate::harness::users::{User, now, phone, sign};
use crate::harness::{Server, text, until};

/// C source of a library for `LD_PRELOAD` that shifts the wall clock by `CLOCK_SHIFT_S` seconds.
const CLOCK_SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = (int)syscall(SYS_clock_gettime, clock, out);
    const char *shift = getenv("CLOCK_SHIFT_S");
    if (result == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += atol(shift);
    return result;
}
"#;

/// The compiled `CLOCK_SHIM`; removed when dropped.
struct Library(TempDir);

impl Library {
    fn path(&self) -> PathBuf {
        self.0.path().join("clock.so")
    }

    /// Compiles with `cc`, which Rust already needs as its linker.
    fn build() -> Self {
        let library = Self(TempDir::with_prefix("recado-it-clock-").unwrap());
        let source = library.path().with_extension("c");
        std::fs::write(&source, CLOCK_SHIM).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library.path(), &source])
            .status();
        assert!(compiled.as_ref().is_ok_and(|status| status.success()), "{compiled:?}");
        library
    }
}

/// A server whose clock is an hour ahead, and one whose clock is an hour behind.
struct Pair {
    ahead: Server,
    behind: u16,
    _process: Process,
    _library: Library,
}

impl Pair {
    fn start(redis: &OwnRedis) -> Self {
        let library = Library::build();
        let options = without_statuses()
            .with("REDIS_URL", redis.url())
            .with("TRUSTED_PROXIES", "127.0.0.0/8")
            .with("CAMPAIGN_MESSAGE_DELAY_MS", "30")
            .with("LD_PRELOAD", library.path().display().to_string())
            .with("CLOCK_SHIFT_S", "3600");
        let ahead = Server::start(options);
        let mut env = ahead.environment();
        env.push(("CLOCK_SHIFT_S", "-3600".into()));
        let process = Process::start(&["serve"], &env);
        let behind = process.port();
        until("the second server is ready", || {
            let reply = Request::new(behind, "GET", "/readyz").try_send();
            reply.is_ok_and(|reply| reply.status == 200)
        });
        Self {
            ahead,
            behind,
            _process: process,
            _library: library,
        }
    }

    /// A user whose session is valid by the clocks of both servers.
    fn user(&self) -> User<'_> {
        let mut user = self.ahead.stranger();
        user.token = sign(&json!({ "sub": user.id, "email": user.email, "exp": now() + 4 * 3600 }));
        user
    }

    fn owner(&self) -> User<'_> {
        let mut user = self.user();
        let created = user.post("/api/accounts", json!({ "name": "Loja" })).created();
        user.account = text(&created["account"]["id"]);
        user
    }

    /// The same request to each server: first the one ahead, then the one behind.
    fn both(&self, user: &User<'_>, method: &str, path: &str) -> [Request; 2] {
        [self.ahead.port(), self.behind].map(|port| Request::new(port, method, path).bearer(&user.token))
    }
}

/// Creates a campaign and returns by how many seconds its `created_at` is ahead of the database's clock.
fn clock_shift(pair: &Pair, request: Request) -> i64 {
    let campaign = request.json(&json!({ "name": "C" })).send().created();
    let query = format!(
        "SELECT round(extract(epoch FROM created_at - now()))::bigint FROM campaigns WHERE id = '{}'",
        text(&campaign["id"])
    );
    pair.ahead.db.text(&query).parse().unwrap()
}

/// Both servers share one rate limit and return the correct waiting time.
fn assert_rate_limit_is_shared(pair: &Pair) {
    let user = pair.owner();
    let send_to_both = || {
        pair.both(&user, "POST", "/api/campaigns")
            .map(|request| request.json(&json!({})))
    };
    until("the limit is reached", || {
        send_to_both()
            .map(Request::send)
            .iter()
            .all(|reply| reply.status == 429)
    });
    for reply in send_to_both().map(Request::send) {
        let wait = reply.number("retry-after");
        assert!((1..=61).contains(&wait), "{wait}");
        let reset = reply.number("x-ratelimit-reset") / 1000 - i64::try_from(now()).unwrap();
        assert!((-2..=62).contains(&reset), "{reset}");
    }
}

/// An invite expires by the database's clock.
fn assert_invite_expiry(pair: &Pair, owner: &User<'_>) {
    for (server, ends_in_minutes, expected) in [(0, 30, 200), (1, -30, 422)] {
        let invitee = pair.user();
        let body = json!({ "email": invitee.email, "role": "member" });
        let invite = owner.post("/api/team/invites", body).created();
        pair.ahead.db.run(&format!(
            "UPDATE team_invites SET created_at = now() - interval '8 days',
               expires_at = now() + interval '{ends_in_minutes} minutes' WHERE id = '{}'",
            text(&invite["id"])
        ));
        let accept = &pair.both(&invitee, "POST", "/api/auth/accept-invite")[server];
        let reply = accept.clone().json(&json!({ "token": invite["token"] })).send();
        assert_eq!(reply.status, expected, "{}", reply.text);
    }
}

/// The service window ends by the database's clock.
fn assert_service_window(pair: &Pair, owner: &User<'_>) {
    for (server, minutes_ago, expected) in [(0, 24 * 60 - 30, 201), (1, 24 * 60 + 30, 400)] {
        let (account, id) = (&owner.account, Uuid::now_v7());
        let contact = owner.contact("Conversa", &phone(500 + server));
        pair.ahead.db.run(&format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
               VALUES ('{account}', '{id}', '{contact}', now(), now() - interval '{minutes_ago} minutes')"
        ));
        let reply = &pair.both(owner, "POST", &format!("/api/conversations/{id}/messages"))[server];
        let reply = reply.clone().json(&json!({ "text": "oi" })).send();
        assert_eq!(reply.status, expected, "{}", reply.text);
    }
}

/// A leased run is not claimed by the other server, and its messages count in the database's month.
fn assert_runs_are_not_stolen(pair: &Pair, owner: &User<'_>) {
    let contacts = 60;
    owner.contacts(contacts);
    let template = owner.approved("Oi {{1}}", &["Ana"]);
    for server in [0, 1] {
        pair.ahead.whatsapp.reset();
        let id = owner.campaign(json!({ "name": "Oferta", "template_id": template }));
        let execute = &pair.both(owner, "POST", &format!("/api/campaigns/{id}/execute"))[server];
        let report = execute.clone().send().ok();
        assert_eq!(
            (&report["failed"], &report["status"]),
            (&json!(0), &json!("completed")),
            "{report}"
        );
        assert_eq!(final_status(owner, &id), "completed");
        let calls = calls(&pair.ahead);
        // `assert_service_window` created two more contacts.
        assert!(
            calls.len() == contacts + 2 && calls.values().all(|calls| *calls == 1),
            "{calls:?}"
        );
    }
    let used_months = "SELECT string_agg(DISTINCT month::text, ' ') FROM message_usage";
    let current_month = "SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date";
    assert_eq!(pair.ahead.db.text(used_months), pair.ahead.db.text(current_month));
    // The usage also contains the reply of `assert_service_window`.
    assert!(usage(&pair.ahead, &owner.account).ends_with(" 0"));
}

/// A scheduled campaign starts by the database's clock.
fn assert_schedule(pair: &Pair, owner: &User<'_>) {
    let id = owner.campaign(json!({ "name": "Depois", "template_id": owner.approved("Oi", &[]) }));
    let at = pair
        .ahead
        .db
        .text("SELECT to_char(now() + interval '30 minutes', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')||':00'");
    let schedule = &pair.both(owner, "POST", &format!("/api/campaigns/{id}/schedule"))[1];
    schedule.clone().json(&json!({ "scheduled_at": at })).send().ok();
    // The first campaign is due by one server's clock only. Both servers poll for due campaigns.
    let due = owner.campaign(json!({ "name": "Agora", "template_id": owner.approved("Oi", &[]) }));
    pair.ahead.db.run(&format!(
        "UPDATE campaigns SET status = 'scheduled', scheduled_at = now() WHERE id = '{due}'"
    ));
    until("the due campaign has started", || owner.status(&due) != "scheduled");
    assert_eq!(owner.status(&id), "scheduled");
    assert_ne!(final_status(owner, &due), "scheduled");
    assert_eq!(owner.status(&id), "scheduled");
}

/// F40e.
#[test]
fn servers_with_wrong_clocks_agree_on_every_deadline() {
    let redis = own_redis();
    let pair = Pair::start(&redis);
    let owner = pair.owner();
    let [ahead, behind] = pair.both(&owner, "POST", "/api/campaigns");
    assert!(
        (3598..=3602).contains(&clock_shift(&pair, ahead)),
        "the server's clock is not shifted"
    );
    assert!(
        (-3602..=-3598).contains(&clock_shift(&pair, behind)),
        "the server's clock is not shifted"
    );
    owner.profile();
    pair.ahead.db.run("UPDATE accounts SET plan = 'scale'");
    assert_rate_limit_is_shared(&pair);
    assert_invite_expiry(&pair, &owner);
    assert_service_window(&pair, &owner);
    assert_runs_are_not_stolen(&pair, &owner);
    assert_schedule(&pair, &owner);
    let _: Value = owner.get("/api/notifications").ok();
}
