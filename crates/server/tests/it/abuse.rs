//! Limits on what one account, person or address can take from the others: accounts, invites, mail, keys, requests.

use recado_simulators::smtp::{self, ReceivedMail, Smtp, SmtpBehavior};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys::create_key;
use crate::harness::client::{Reply, Request};
use crate::harness::users::{User, now, sign};
use crate::harness::{Options, Server, eventually, text, until};

/// Asserts 429 with the headers of a limit. Returns `Retry-After`.
#[track_caller]
fn limited(reply: Reply, limit: i64) -> i64 {
    let headers = ["x-ratelimit-limit", "x-ratelimit-remaining"];
    assert_eq!(headers.map(|name| reply.number(name)), [limit, 0]);
    let (reset, retry) = (reply.number("x-ratelimit-reset"), reply.number("retry-after"));
    let now_ms = i64::try_from(now()).unwrap() * 1000;
    assert!((reset - now_ms - retry * 1000).abs() <= 3000, "{reset} {retry}");
    reply.refused(429, "RATE_LIMIT");
    retry
}

fn create_account(user: &User<'_>) -> Reply {
    user.post("/api/accounts", json!({ "name": "Loja" }))
}

fn invite(owner: &User<'_>, email: &str) -> Reply {
    owner.post("/api/team/invites", json!({ "email": email, "role": "member" }))
}

#[test]
fn accounts_that_a_user_made_and_owns_are_limited() {
    let server = Server::start(Options::default().with("ACCOUNTS_PER_USER", "2"));
    let ana = server.owner();
    let second = text(&create_account(&ana).created()["account"]["id"]);
    assert_eq!(create_account(&ana).invalid(), ["name"]);
    create_account(&server.stranger()).created();
    // Accounts that administrators make are not counted, even if the same person makes them.
    let root = server.root();
    for _ in 0..3 {
        root.post("/api/admin/accounts", json!({ "name": "Loja" })).created();
    }
    create_account(&root).created();
    create_account(&root).created();
    assert_eq!(create_account(&root).invalid(), ["name"]);
    root.delete(&format!("/api/admin/accounts/{second}")).no_content();
    create_account(&ana).created();
}

#[test]
fn invites_are_limited_to_sixty_a_minute_per_account() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    for number in 0..60 {
        let reply = invite(&ana, "bia@example.com");
        assert_eq!(reply.number("x-ratelimit-remaining"), 59 - number);
        assert_eq!(reply.created()["mailed"], false);
    }
    assert!((1..=60).contains(&limited(invite(&ana, "bia@example.com"), 60)));
    let admin = server.member(&ana.account, "admin");
    limited(invite(&admin, "caio@example.com"), 60);
    invite(&bia, "caio@example.com").created();
}

#[test]
fn pending_invites_of_an_account_are_limited_to_a_hundred() {
    let server = Server::new();
    let ana = server.owner();
    server.db.run(&format!(
        "INSERT INTO team_invites (account_id, id, email, role, invited_by, expires_at)
         SELECT '{}', gen_random_uuid(), 'p' || n || '@example.com', 'viewer', '{}', now() + interval '1 day'
         FROM generate_series(1, 99) n",
        ana.account, ana.id
    ));
    let hundredth = invite(&ana, "bia@example.com").created();
    assert_eq!(invite(&ana, "caio@example.com").invalid(), ["email"]);
    // An invite to an address that is already invited takes the place of the old one.
    let again = invite(&ana, "Bia@example.com").created();
    assert_ne!(again["id"], hundredth["id"]);
    ana.delete(&format!("/api/team/invites/{}", text(&again["id"])))
        .no_content();
    invite(&ana, "caio@example.com").created();
    invite(&server.owner(), "dora@example.com").created();
}

fn with_mail(mail: &Smtp) -> Server {
    Server::start(Options::default().with("SMTP_URL", mail.url()))
}

fn start_smtp() -> Smtp {
    Smtp::start(smtp::SmtpOptions::default()).unwrap()
}

fn wait_for_mails(mail: &Smtp, count: usize) -> Vec<ReceivedMail> {
    eventually("the mail arrives", || {
        Some(mail.mails()).filter(|mails| mails.len() >= count)
    })
}

#[test]
fn address_gets_one_mail_an_hour_of_an_account_and_five_a_day() {
    let mail = start_smtp();
    let server = with_mail(&mail);
    let ana = server.owner();
    let first = invite(&ana, "bia@example.com").created();
    assert_eq!(first["mailed"], true);
    for _ in 0..9 {
        let silent = invite(&ana, "BIA@example.com").created();
        assert_eq!(silent["mailed"], false);
        assert!(text(&silent["accept_url"]).contains(&text(&silent["token"])));
    }
    let mailed = (0..9)
        .map(|_| invite(&server.owner(), "bia@example.com").created())
        .filter(|invite| invite["mailed"] == true)
        .count();
    assert_eq!(mailed, 4);
    // Administrators invite by the same mail server.
    let body = json!({ "name": "Loja", "owner_email": "bia@example.com" });
    let made = server.root().post("/api/admin/accounts", body).created();
    assert_eq!(made["owner_invite"]["mailed"], false);
    assert_eq!(invite(&ana, "caio@example.com").created()["mailed"], true);
    wait_for_mails(&mail, 6);
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
    let to_bia = mail
        .mails()
        .iter()
        .filter(|mail| mail.to == ["bia@example.com"])
        .count();
    assert_eq!((to_bia, mail.mails().len()), (5, 6));
    // The database counts addresses without holding them.
    let recipients = server.db.text("SELECT string_agg(r::text, ' ') FROM mail_recipients r");
    assert!(
        !recipients.contains("bia") && !recipients.contains("example"),
        "{recipients}"
    );
    assert_eq!(server.db.count("FROM mail_recipients"), 6);
    // An hour later the account may mail the address again, a day later anyone may.
    server
        .db
        .run("UPDATE mail_recipients SET mailed_at = mailed_at - interval '1 hour'");
    assert_eq!(invite(&ana, "bia@example.com").created()["mailed"], false);
    assert_eq!(invite(&ana, "caio@example.com").created()["mailed"], true);
    server
        .db
        .run("UPDATE mail_recipients SET mailed_at = mailed_at - interval '23 hours'");
    assert_eq!(invite(&ana, "bia@example.com").created()["mailed"], true);
}

/// A user whose token has these claims beside the required ones.
fn with_claims(server: &Server, claims: Value) -> User<'_> {
    let mut user = server.stranger();
    let mut all = json!({ "sub": user.id, "email": user.email, "exp": now() + 3600 });
    all.as_object_mut()
        .unwrap()
        .extend(claims.as_object().cloned().unwrap());
    user.token = sign(&all);
    user
}

#[test]
fn mail_contains_no_address_of_a_name_and_no_unproved_name() {
    let mail = start_smtp();
    let server = with_mail(&mail);
    let cases = [
        (
            json!({ "name": "Ana www.evil.example", "email_verified": true }),
            Some("Ana … invites you"),
        ),
        (json!({ "name": "Ana Banco" }), None),
        (
            json!({ "name": "Ana Banco", "email_verified": true }),
            Some("Ana Banco invites you"),
        ),
    ];
    for (number, (claims, inviter)) in cases.into_iter().enumerate() {
        let user = with_claims(&server, claims);
        user.post(
            "/api/accounts",
            json!({ "name": "Loja https://evil.example/x bit.ly/y" }),
        )
        .created();
        invite(&user, &format!("bia{number}@example.com")).created();
        let mails = wait_for_mails(&mail, number + 1);
        let (subject, body) = (mails[number].header("Subject").unwrap(), mails[number].text());
        let expected = inviter.map_or_else(|| format!("{} invites you", user.email), str::to_owned);
        assert!(body.contains(&expected), "{expected}: {body}");
        assert!(body.contains("to join Loja … … on Recado"), "{body}");
        for forbidden in ["evil", "bit.ly", "://"] {
            assert!(!subject.contains(forbidden), "{subject}");
        }
        assert!(!body.contains("evil") && !body.contains("bit.ly"), "{body}");
        assert!(inviter.is_some() || !body.contains("Banco"), "{body}");
    }
}

#[test]
fn mails_of_one_account_do_not_delay_those_of_another() {
    let mail = start_smtp();
    mail.set_behavior(SmtpBehavior::Refuses(451));
    let server = with_mail(&mail);
    let (ana, bia) = (server.owner(), server.owner());
    invite(&ana, "first@example.com").created();
    until("the mail was tried", || {
        server
            .db
            .count("FROM outgoing_mail WHERE attempts > 0 AND due_at > now() + interval '30 seconds'")
            == 1
    });
    server.db.run(
        "INSERT INTO outgoing_mail (id, account_id, content, due_at)
         SELECT gen_random_uuid(), account_id, content, now() - interval '1 hour'
         FROM outgoing_mail, generate_series(1, 5000)",
    );
    mail.set_behavior(SmtpBehavior::default());
    until("the backlog is being sent", || {
        server.db.count("FROM outgoing_mail WHERE due_at < now()") < 4990
    });
    invite(&bia, "dora@example.com").created();
    until("the other account's mail arrives", || {
        mail.mails().iter().any(|mail| mail.to == ["dora@example.com"])
    });
    assert!(server.db.count("FROM outgoing_mail") > 0, "the backlog was sent first");
}

fn unknown_key() -> String {
    format!("svc_live_sk_{}", Uuid::new_v4().simple())
}

fn behind_proxy() -> Server {
    Server::start(Options::default().with("TRUSTED_PROXIES", "127.0.0.1"))
}

fn from(server: &Server, address: &str) -> Request {
    server.get("/api/contacts").header("X-Forwarded-For", address)
}

#[test]
fn unknown_keys_of_an_address_are_limited_to_sixty_a_minute() {
    let server = behind_proxy();
    let ana = server.owner();
    let key = create_key(&ana);
    // The addresses of one IPv6 network count as one.
    for number in 0..60 {
        let address = format!("2001:db8:1:2:{number:x}::1");
        let reply = from(&server, &address).bearer(&unknown_key()).send();
        assert_eq!(reply.header("retry-after"), None);
        reply.refused(401, "AUTH_ERROR");
    }
    let neighbour = "2001:db8:1:2:ffff::9";
    assert!((1..=60).contains(&limited(from(&server, neighbour).bearer(&unknown_key()).send(), 60)));
    limited(from(&server, neighbour).header("X-API-Key", &unknown_key()).send(), 60);
    // A valid key, a session and another network are not affected.
    from(&server, neighbour).bearer(&key).send().ok();
    from(&server, neighbour).bearer(&ana.token).send().ok();
    for other in ["2001:db8:1:3::1", "192.0.2.1"] {
        let refused = from(&server, other).bearer(&unknown_key()).send();
        refused.refused(401, "AUTH_ERROR");
    }
    // A wrong session token is no key.
    for _ in 0..70 {
        from(&server, "192.0.2.2").bearer("x").send().refused(401, "AUTH_ERROR");
    }
}

#[test]
fn limits_by_address_count_ipv6_networks() {
    let server = behind_proxy();
    let bia = server.stranger();
    let accept = |address: &str| {
        let request = bia.request("POST", "/api/auth/accept-invite");
        request
            .header("X-Forwarded-For", address)
            .json(&json!({ "token": "x" }))
            .send()
    };
    for number in 1..=5 {
        accept(&format!("2001:db8::{number:x}")).refused(404, "NOT_FOUND");
    }
    limited(accept("2001:db8::ffff:1"), 5);
    accept("2001:db8:0:1::1").refused(404, "NOT_FOUND");
}

#[test]
fn operators_ceiling_limits_accounts_and_anonymous_addresses() {
    let server = Server::start(
        Options::default()
            .with("REQUESTS_PER_MINUTE", "6")
            .with("TRUSTED_PROXIES", "127.0.0.1"),
    );
    let ana = server.owner();
    let member = server.member(&ana.account, "viewer");
    for (number, path) in ["/api/contacts", "/api/campaigns", "/api/tags"].iter().enumerate() {
        let reply = ana.get(path);
        let used = i64::try_from(number).unwrap() * 2;
        assert_eq!(
            [reply.number("x-ratelimit-limit"), reply.number("x-ratelimit-remaining")],
            [6, 5 - used]
        );
        reply.expect(200);
        member.get(path).expect(200);
    }
    assert!((1..=60).contains(&limited(ana.get("/api/contacts"), 6)));
    limited(member.get("/api/segments"), 6);
    // A route with a published limit counts, too.
    limited(ana.post("/api/campaigns", json!({ "name": "C" })), 6);
    let other = server.owner();
    assert_eq!(
        other
            .post("/api/campaigns", json!({ "name": "C" }))
            .number("x-ratelimit-limit"),
        30
    );
    // Routes without an account count by user, anonymous ones by address, and probes do not count.
    for _ in 0..5 {
        ana.get("/api/accounts").ok();
    }
    limited(ana.get("/api/accounts"), 6);
    let plans = |address: &str| {
        server
            .get("/api/billing/plans")
            .header("X-Forwarded-For", address)
            .send()
    };
    for _ in 0..6 {
        plans("192.0.2.1").ok();
    }
    limited(plans("192.0.2.1"), 6);
    plans("192.0.2.2").ok();
    for _ in 0..10 {
        server.get("/healthz").send().ok();
        server.get("/readyz").send().ok();
    }
}

#[test]
fn no_ceiling_by_default() {
    let server = Server::new();
    let ana = server.owner();
    for _ in 0..100 {
        assert_eq!(ana.get("/api/tags").header("x-ratelimit-limit"), None);
    }
}

#[test]
fn idempotency_keys_of_an_account_are_limited_until_midnight() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let create = |user: &User<'_>, key: &str| {
        user.request("POST", "/api/tags")
            .header("Idempotency-Key", key)
            .json(&json!({ "name": key }))
            .send()
    };
    let first = create(&ana, "first").created();
    server
        .db
        .run("UPDATE idempotency_key_counts SET keys = 50000, day = (now() AT TIME ZONE 'UTC')::date");
    let retry = limited(create(&ana, "second"), 50_000);
    let seconds = i64::try_from(86_400 - now() % 86_400).unwrap();
    assert!((retry - seconds).abs() <= 3, "{retry} {seconds}");
    assert_eq!(server.db.count("FROM tags WHERE name = 'second'"), 0);
    // Stored responses, requests without a key and other accounts are not affected.
    let again = create(&ana, "first");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.created(), first);
    ana.post("/api/tags", json!({ "name": "second" })).created();
    create(&bia, "second").created();
    server.db.run("UPDATE idempotency_key_counts SET day = day - 1");
    create(&ana, "third").created();
}
