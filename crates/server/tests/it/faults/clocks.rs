//! Servers whose clocks are an hour wrong, each in its own direction: what several of them decide together is decided by
//! the clock of the database, and by that of Redis.

use std::path::PathBuf;
use std::process::Command;

use recado_redis::testing::OwnRedis;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Request;
use crate::harness::process::{Process, free_port, own_redis};
use crate::harness::runs::{calls, ended, silent, usage};
use crate::harness::users::{User, now, phone, sign};
use crate::harness::{Server, text, until};

/// Stands between a program and the system's clock, and shifts what is told.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *told) {
    int result = (int)syscall(SYS_clock_gettime, clock, told);
    const char *shift = getenv("CLOCK_SHIFT_S");
    if (result == 0 && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        told->tv_sec += atol(shift);
    return result;
}
"#;

/// The shift as a library, removed when dropped.
struct Library(PathBuf);

impl Library {
    /// By the compiler that links every program here.
    fn build() -> Self {
        let source = std::env::temp_dir().join(format!("recado-it-{}.c", Uuid::new_v4().simple()));
        let library = source.with_extension("so");
        std::fs::write(&source, SHIFT).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status();
        std::fs::remove_file(&source).unwrap();
        assert!(compiled.as_ref().is_ok_and(|status| status.success()), "{compiled:?}");
        Self(library)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// A server an hour ahead, and another one an hour behind it all.
struct Pair {
    ahead: Server,
    behind: u16,
    _process: Process,
    _library: Library,
}

impl Pair {
    fn start(redis: &OwnRedis) -> Self {
        let library = Library::build();
        let options = silent()
            .with("REDIS_URL", redis.url())
            .with("TRUSTED_PROXIES", "127.0.0.0/8")
            .with("CAMPAIGN_MESSAGE_DELAY_MS", "30")
            .with("LD_PRELOAD", library.0.display().to_string())
            .with("CLOCK_SHIFT_S", "3600");
        let ahead = Server::start(options);
        let behind = free_port();
        let mut env = ahead.environment();
        env.push(("CLOCK_SHIFT_S", "-3600".into()));
        env.push(("BIND", format!("127.0.0.1:{behind}")));
        let process = Process::start(&["serve"], &env);
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

    /// Somebody with a session that is good by every clock.
    fn person(&self) -> User<'_> {
        let mut user = self.ahead.stranger();
        user.token = sign(&json!({ "sub": user.id, "email": user.email, "exp": now() + 4 * 3600 }));
        user
    }

    fn owner(&self) -> User<'_> {
        let mut user = self.person();
        let made = user.post("/api/accounts", json!({ "name": "Loja" })).created();
        user.account = text(&made["account"]["id"]);
        user
    }

    /// The request, at either server.
    fn both(&self, user: &User<'_>, method: &str, path: &str) -> [Request; 2] {
        [self.ahead.port(), self.behind].map(|port| Request::new(port, method, path).bearer(&user.token))
    }
}

/// How many seconds later than the database's the clock is that a new campaign's moment comes from.
fn shift(pair: &Pair, request: Request) -> i64 {
    let made = request.json(&json!({ "name": "C" })).send().created();
    let shift = format!(
        "SELECT round(extract(epoch FROM created_at - now()))::bigint FROM campaigns WHERE id = '{}'",
        text(&made["id"])
    );
    pair.ahead.db.text(&shift).parse().unwrap()
}

/// One count for both, and everybody is told to wait as long as it takes.
fn limits(pair: &Pair) {
    let user = pair.owner();
    let ask = || {
        pair.both(&user, "POST", "/api/campaigns")
            .map(|request| request.json(&json!({})))
    };
    until("the limit is reached", || {
        ask().map(Request::send).iter().all(|reply| reply.status == 429)
    });
    for reply in ask().map(Request::send) {
        let wait = reply.number("retry-after");
        assert!((1..=61).contains(&wait), "{wait}");
        let reset = reply.number("x-ratelimit-reset") / 1000 - i64::try_from(now()).unwrap();
        assert!((-2..=62).contains(&reset), "{reset}");
    }
}

/// An invite ends when the database says so.
fn invites(pair: &Pair, owner: &User<'_>) {
    for (server, ends_in_minutes, wanted) in [(0, 30, 200), (1, -30, 422)] {
        let person = pair.person();
        let body = json!({ "email": person.email, "role": "member" });
        let made = owner.post("/api/team/invites", body).created();
        pair.ahead.db.run(&format!(
            "UPDATE team_invites SET created_at = now() - interval '8 days',
               expires_at = now() + interval '{ends_in_minutes} minutes' WHERE id = '{}'",
            text(&made["id"])
        ));
        let accept = &pair.both(&person, "POST", "/api/auth/accept-invite")[server];
        let reply = accept.clone().json(&json!({ "token": made["token"] })).send();
        assert_eq!(reply.status, wanted, "{}", reply.text);
    }
}

/// So does the time in which somebody may be answered.
fn windows(pair: &Pair, owner: &User<'_>) {
    for (server, minutes_ago, wanted) in [(0, 24 * 60 - 30, 201), (1, 24 * 60 + 30, 400)] {
        let (account, id) = (&owner.account, Uuid::now_v7());
        let contact = owner.contact("Conversa", &phone(500 + server));
        pair.ahead.db.run(&format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
               VALUES ('{account}', '{id}', '{contact}', now(), now() - interval '{minutes_ago} minutes')"
        ));
        let reply = &pair.both(owner, "POST", &format!("/api/conversations/{id}/messages"))[server];
        let reply = reply.clone().json(&json!({ "text": "oi" })).send();
        assert_eq!(reply.status, wanted, "{}", reply.text);
    }
}

/// A run that one of them holds is left to it by the other, and counts in the database's month.
fn runs(pair: &Pair, owner: &User<'_>) {
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
        assert_eq!(ended(owner, &id), "completed");
        let calls = calls(&pair.ahead);
        // The two of the conversations are contacts, too.
        assert!(
            calls.len() == contacts + 2 && calls.values().all(|calls| *calls == 1),
            "{calls:?}"
        );
    }
    let month = "SELECT string_agg(DISTINCT month::text, ' ') FROM message_usage";
    let this = "SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date";
    assert_eq!(pair.ahead.db.text(month), pair.ahead.db.text(this));
    // And the one reply.
    assert!(usage(&pair.ahead, &owner.account).ends_with(" 0"));
}

/// A campaign begins at its time, and not when a server thinks that it has come.
fn schedules(pair: &Pair, owner: &User<'_>) {
    let id = owner.campaign(json!({ "name": "Depois", "template_id": owner.approved("Oi", &[]) }));
    let at = pair
        .ahead
        .db
        .text("SELECT to_char(now() + interval '30 minutes', 'YYYY-MM-DD\"T\"HH24:MI:SSOF')||':00'");
    let schedule = &pair.both(owner, "POST", &format!("/api/campaigns/{id}/schedule"))[1];
    schedule.clone().json(&json!({ "scheduled_at": at })).send().ok();
    // Its time has come by the clock of one of them only; both look all the time.
    let other = owner.campaign(json!({ "name": "Agora", "template_id": owner.approved("Oi", &[]) }));
    pair.ahead.db.run(&format!(
        "UPDATE campaigns SET status = 'scheduled', scheduled_at = now() WHERE id = '{other}'"
    ));
    until("the one that is due has begun", || owner.status(&other) != "scheduled");
    assert_eq!(owner.status(&id), "scheduled");
    assert_ne!(ended(owner, &other), "scheduled");
    assert_eq!(owner.status(&id), "scheduled");
}

/// F40e.
#[test]
fn servers_whose_clocks_are_wrong_agree_on_limits_invites_windows_months_runs_and_schedules() {
    let redis = own_redis();
    let pair = Pair::start(&redis);
    let owner = pair.owner();
    let [ahead, behind] = pair.both(&owner, "POST", "/api/campaigns");
    assert!((3598..=3602).contains(&shift(&pair, ahead)), "its clock is not shifted");
    assert!(
        (-3602..=-3598).contains(&shift(&pair, behind)),
        "its clock is not shifted"
    );
    owner.profile();
    pair.ahead.db.run("UPDATE accounts SET plan = 'scale'");
    limits(&pair);
    invites(&pair, &owner);
    windows(&pair, &owner);
    runs(&pair, &owner);
    schedules(&pair, &owner);
    let _: Value = owner.get("/api/notifications").ok();
}
