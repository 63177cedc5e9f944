//! The mail of an invitation, against a small mail server: it arrives, or it waits, and never tells what it holds.

use std::time::{Duration, Instant};

use recado_simulators::smtp::{self, ReceivedMail, Smtp, SmtpBehavior};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, shortest, text, until};

fn post_office() -> Smtp {
    Smtp::start(smtp::SmtpOptions::default()).unwrap()
}

fn server(mail: &Smtp) -> Server {
    let url = mail.url().replace("smtp://", "smtp://mailer:hunter2@");
    Server::start(Options::default().with("SMTP_URL", url))
}

fn invite(owner: &User<'_>, email: &str) -> Value {
    let body = json!({ "email": email, "role": "member" });
    owner.post("/api/team/invites", body).created()
}

fn arrived(mail: &Smtp, count: usize) -> Vec<ReceivedMail> {
    eventually("the mail arrives", || {
        Some(mail.mails()).filter(|mails| mails.len() >= count)
    })
}

/// Of the one mail that waits.
fn waiting(server: &Server, what: &str) -> String {
    server.db.text(&format!("SELECT {what} FROM outgoing_mail"))
}

fn hurry(server: &Server) {
    server.db.run("UPDATE outgoing_mail SET due_at = now()");
}

/// The mail failed and was put back: its next try is further away than the lease of a try.
fn deferred(server: &Server, attempts: u32) {
    until("the mail is put back", || {
        let state = waiting(
            server,
            "attempts || ' ' || (abs(extract(epoch FROM due_at - now()) - 120) > 5)",
        );
        state == format!("{attempts} true")
    });
}

#[test]
fn an_invitation_arrives_within_a_second_and_its_link_works() {
    let mail = post_office();
    let server = server(&mail);
    let ana = server.owner();
    let bia = server.stranger();
    // The first connection of the queue is not what is measured.
    invite(&ana, "warm@example.com");
    arrived(&mail, 1);
    let mut times = Vec::new();
    for already in 1..4 {
        let began = Instant::now();
        invite(&ana, &format!("dora{already}@example.com"));
        arrived(&mail, already + 1);
        times.push(began.elapsed());
    }
    assert!(shortest(times.clone()) < Duration::from_secs(1), "{times:?}");
    let made = invite(&ana, &bia.email.to_uppercase());
    let mails = arrived(&mail, 5);
    let received = &mails[4];
    assert_eq!(received.to, [bia.email.to_uppercase()]);
    assert_eq!(received.header("Subject").unwrap(), "Join Loja on Recado");
    assert_eq!(received.header("From").unwrap(), "Recado <no-reply@localhost>");
    let body = received.text();
    let expiry = text(&made["expires_at"]);
    let expiry = format!("{} {} UTC", &expiry[..10], &expiry[11..16]);
    for part in [ana.email.as_str(), "the role member", expiry.as_str()] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let link = body.lines().find(|line| line.starts_with("http")).unwrap();
    assert_eq!(json!(link), made["accept_url"]);
    let token = link.split_once("token=").unwrap().1;
    bia.post("/api/auth/accept-invite", json!({ "token": token })).ok();
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
    for secret in [token, "hunter2"] {
        assert!(!server.log().contains(secret));
    }
}

#[test]
fn the_sender_can_be_named() {
    let mail = post_office();
    let options = Options::default().with("SMTP_URL", mail.url());
    let server = Server::start(options.with("MAIL_FROM", "Loja <ola@loja.example>"));
    invite(&server.owner(), "bia@example.com");
    let mails = arrived(&mail, 1);
    assert_eq!(mails[0].header("From").unwrap(), "Loja <ola@loja.example>");
    assert_eq!(mails[0].from, "ola@loja.example");
}

#[test]
fn without_a_mail_server_nothing_is_queued() {
    let server = Server::new();
    let made = invite(&server.owner(), "bia@example.com");
    assert!(made["token"].is_string());
    assert_eq!(server.db.count("FROM outgoing_mail"), 0);
    assert_eq!(server.db.count("FROM team_invites"), 1);
}

#[test]
fn a_refused_mail_waits_sealed_and_goes_out_later() {
    let mail = post_office();
    mail.set_behavior(SmtpBehavior::Refuses(451));
    let server = server(&mail);
    let made = invite(&server.owner(), "bia@example.com");
    deferred(&server, 1);
    let rest: f64 = waiting(&server, "extract(epoch FROM due_at - now())").parse().unwrap();
    assert!((50.0..=60.0).contains(&rest), "{rest}");
    let content = waiting(&server, "encode(content, 'escape')");
    let token = text(&made["token"]);
    for secret in [token.as_str(), "bia@example.com", "accept-invite", "Loja"] {
        assert!(!content.contains(secret), "{secret}");
    }
    mail.set_behavior(SmtpBehavior::Takes);
    hurry(&server);
    let mails = arrived(&mail, 1);
    assert!(mails[0].text().contains(&token));
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
    let log = server.log();
    assert!(log.contains("a mail was not sent") && log.contains("451"), "{log}");
    for secret in [token.as_str(), "bia@example.com", "hunter2"] {
        assert!(!log.contains(secret), "{secret}");
    }
}

#[test]
fn after_the_eighth_try_a_mail_is_given_up() {
    let mail = post_office();
    mail.set_behavior(SmtpBehavior::Refuses(550));
    let server = server(&mail);
    let made = invite(&server.owner(), "bia@example.com");
    deferred(&server, 1);
    server.db.run("UPDATE outgoing_mail SET attempts = 7, due_at = now()");
    until("the mail is given up", || server.db.count("FROM outgoing_mail") == 0);
    assert!(mail.mails().is_empty());
    let log = eventually("the log tells", || {
        Some(server.log()).filter(|log| log.contains("given up"))
    });
    assert!(!log.contains(&text(&made["token"])) && !log.contains("hunter2"));
    // The invite itself stands.
    assert_eq!(server.db.count("FROM team_invites WHERE status = 'pending'"), 1);
}

#[test]
fn a_mail_server_that_hangs_holds_up_nobody_and_a_crash_loses_nothing() {
    let mail = post_office();
    mail.set_behavior(SmtpBehavior::Hangs);
    let server = server(&mail);
    let ana = server.owner();
    invite(&ana, "bia@example.com");
    until("somebody tries to send it", || mail.attempts() == 1);
    invite(&ana, "caio@example.com");
    assert_eq!(mail.attempts(), 1, "it did not wait for the mail server");
    // In the middle of it.
    server.kill();
    mail.set_behavior(SmtpBehavior::Takes);
    server.run(&["serve"]);
    arrived(&mail, 1);
    // The lease of the dead one runs out.
    hurry(&server);
    let mut recipients: Vec<String> = arrived(&mail, 2).into_iter().flat_map(|mail| mail.to).collect();
    recipients.sort_unstable();
    assert_eq!(recipients, ["bia@example.com", "caio@example.com"]);
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
}

#[test]
fn what_may_have_arrived_is_sent_again_under_the_same_id() {
    let mail = post_office();
    mail.set_behavior(SmtpBehavior::KeepsAndCloses);
    let server = server(&mail);
    invite(&server.owner(), "bia@example.com");
    deferred(&server, 1);
    mail.set_behavior(SmtpBehavior::Takes);
    hurry(&server);
    let mails = arrived(&mail, 2);
    assert_eq!(mails[0].header("Message-ID"), mails[1].header("Message-ID"));
}

#[test]
fn a_hostile_name_makes_no_header() {
    let mail = post_office();
    let server = server(&mail);
    let ana = server.owner();
    server.db.run(&format!(
        "UPDATE accounts SET name = E'Loja\\r\\nBcc: all@example.com\\r\\n\\r\\nClick' WHERE id = '{0}';
         UPDATE users SET name = E'Ana\\r\\n.\\r\\nMAIL FROM:<x@y.example>' WHERE id = '{1}'",
        ana.account, ana.id
    ));
    invite(&ana, "bia@example.com");
    let mails = arrived(&mail, 1);
    assert_eq!((mails.len(), mails[0].to.len(), mails[0].header("Bcc")), (1, 1, None));
    let subject = mails[0].header("Subject").unwrap();
    assert_eq!(subject, "Join Loja Bcc: all@example.com Click on Recado");
    assert!(mails[0].text().contains("/accept-invite?token="));
}

#[test]
fn a_server_of_routes_alone_leaves_its_mail_to_a_worker() {
    let mail = post_office();
    let options = Options::default().with("SMTP_URL", mail.url());
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..options
    });
    invite(&server.owner(), "bia@example.com");
    assert_eq!(server.db.count("FROM outgoing_mail"), 1);
    server.run(&["worker"]);
    arrived(&mail, 1);
}
