//! Invite mail, against a small SMTP server: delivery, retries and sealed storage in the queue.

use std::time::Instant;

use recado_simulators::smtp::{self, ReceivedMail, Smtp, SmtpBehavior};
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Options, Server, assert_within_a_second, eventually, text, until};

fn start_smtp() -> Smtp {
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

fn wait_for_mails(mail: &Smtp, count: usize) -> Vec<ReceivedMail> {
    eventually("the mail arrives", || {
        Some(mail.mails()).filter(|mails| mails.len() >= count)
    })
}

/// A column or expression of the only queued mail.
fn queued_mail(server: &Server, expression: &str) -> String {
    server.db.text(&format!("SELECT {expression} FROM outgoing_mail"))
}

fn make_due(server: &Server) {
    server.db.run("UPDATE outgoing_mail SET due_at = now()");
}

/// Waits until the mail is requeued after a failed attempt: its `due_at` is not the end of
/// an attempt's lease of 120 s.
fn wait_for_requeue(server: &Server, attempts: u32) {
    until("the mail is requeued", || {
        let state = queued_mail(
            server,
            "attempts || ' ' || (abs(extract(epoch FROM due_at - now()) - 120) > 5)",
        );
        state == format!("{attempts} true")
    });
}

#[test]
fn invite_mail_arrives_within_a_second_and_its_link_works() {
    let mail = start_smtp();
    let server = server(&mail);
    let ana = server.owner();
    let bia = server.stranger();
    // The first mail opens the connections; it is not measured.
    invite(&ana, "warm@example.com");
    wait_for_mails(&mail, 1);
    let mut times = Vec::new();
    for sent in 1..=10 {
        let began = Instant::now();
        invite(&ana, &format!("dora{sent}@example.com"));
        wait_for_mails(&mail, sent + 1);
        times.push(began.elapsed());
    }
    assert_within_a_second(&times);
    let made = invite(&ana, &bia.email.to_uppercase());
    let mails = wait_for_mails(&mail, 12);
    let received = &mails[11];
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
fn mail_from_sets_the_sender() {
    let mail = start_smtp();
    let options = Options::default().with("SMTP_URL", mail.url());
    let server = Server::start(options.with("MAIL_FROM", "Loja <ola@loja.example>"));
    invite(&server.owner(), "bia@example.com");
    let mails = wait_for_mails(&mail, 1);
    assert_eq!(mails[0].header("From").unwrap(), "Loja <ola@loja.example>");
    assert_eq!(mails[0].from, "ola@loja.example");
}

#[test]
fn invite_without_mail_server_queues_no_mail() {
    let server = Server::new();
    let made = invite(&server.owner(), "bia@example.com");
    assert!(made["token"].is_string());
    assert_eq!(server.db.count("FROM outgoing_mail"), 0);
    assert_eq!(server.db.count("FROM team_invites"), 1);
}

#[test]
fn refused_mail_waits_sealed_and_is_sent_later() {
    let mail = start_smtp();
    mail.set_behavior(SmtpBehavior::Refuses(451));
    let server = server(&mail);
    let made = invite(&server.owner(), "bia@example.com");
    wait_for_requeue(&server, 1);
    let delay: f64 = queued_mail(&server, "extract(epoch FROM due_at - now())")
        .parse()
        .unwrap();
    assert!((50.0..=60.0).contains(&delay), "{delay}");
    let content = queued_mail(&server, "encode(content, 'escape')");
    let token = text(&made["token"]);
    for secret in [token.as_str(), "bia@example.com", "accept-invite", "Loja"] {
        assert!(!content.contains(secret), "{secret}");
    }
    mail.set_behavior(SmtpBehavior::Takes);
    make_due(&server);
    let mails = wait_for_mails(&mail, 1);
    assert!(mails[0].text().contains(&token));
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
    let log = server.log();
    assert!(log.contains("a mail was not sent") && log.contains("451"), "{log}");
    for secret in [token.as_str(), "bia@example.com", "hunter2"] {
        assert!(!log.contains(secret), "{secret}");
    }
}

#[test]
fn mail_is_abandoned_after_the_eighth_attempt() {
    let mail = start_smtp();
    mail.set_behavior(SmtpBehavior::Refuses(550));
    let server = server(&mail);
    let made = invite(&server.owner(), "bia@example.com");
    wait_for_requeue(&server, 1);
    server.db.run("UPDATE outgoing_mail SET attempts = 7, due_at = now()");
    until("the mail is abandoned", || server.db.count("FROM outgoing_mail") == 0);
    assert!(mail.mails().is_empty());
    let log = eventually("the log reports it", || {
        Some(server.log()).filter(|log| log.contains("a mail was abandoned"))
    });
    assert!(!log.contains(&text(&made["token"])) && !log.contains("hunter2"));
    // The invite stays pending.
    assert_eq!(server.db.count("FROM team_invites WHERE status = 'pending'"), 1);
}

#[test]
fn hanging_mail_server_and_crash_lose_no_mail() {
    let mail = start_smtp();
    mail.set_behavior(SmtpBehavior::Hangs);
    let server = server(&mail);
    let ana = server.owner();
    invite(&ana, "bia@example.com");
    until("the first mail is being sent", || mail.attempts() == 1);
    invite(&ana, "caio@example.com");
    assert_eq!(mail.attempts(), 1, "the request did not wait for the mail server");
    // The server dies during the attempt.
    server.kill();
    mail.set_behavior(SmtpBehavior::Takes);
    server.run(&["serve"]);
    wait_for_mails(&mail, 1);
    // The lease of the killed server expires.
    make_due(&server);
    let mut recipients: Vec<String> = wait_for_mails(&mail, 2).into_iter().flat_map(|mail| mail.to).collect();
    recipients.sort_unstable();
    assert_eq!(recipients, ["bia@example.com", "caio@example.com"]);
    until("the queue is empty", || server.db.count("FROM outgoing_mail") == 0);
}

#[test]
fn mail_with_unknown_outcome_is_resent_with_the_same_id() {
    let mail = start_smtp();
    mail.set_behavior(SmtpBehavior::StoresThenCloses);
    let server = server(&mail);
    invite(&server.owner(), "bia@example.com");
    wait_for_requeue(&server, 1);
    mail.set_behavior(SmtpBehavior::Takes);
    make_due(&server);
    let mails = wait_for_mails(&mail, 2);
    assert_eq!(mails[0].header("Message-ID"), mails[1].header("Message-ID"));
}

#[test]
fn hostile_account_name_adds_no_mail_header() {
    let mail = start_smtp();
    let server = server(&mail);
    let ana = server.owner();
    server.db.run(&format!(
        "UPDATE accounts SET name = E'Loja\\r\\nBcc: all@example.com\\r\\n\\r\\nClick' WHERE id = '{0}';
         UPDATE users SET name = E'Ana\\r\\n.\\r\\nMAIL FROM:<x@y.example>' WHERE id = '{1}'",
        ana.account, ana.id
    ));
    invite(&ana, "bia@example.com");
    let mails = wait_for_mails(&mail, 1);
    assert_eq!((mails.len(), mails[0].to.len(), mails[0].header("Bcc")), (1, 1, None));
    let subject = mails[0].header("Subject").unwrap();
    assert_eq!(subject, "Join Loja Bcc: all@example.com Click on Recado");
    assert!(mails[0].text().contains("/accept-invite?token="));
}

#[test]
fn server_without_workers_leaves_mail_to_a_worker() {
    let mail = start_smtp();
    let options = Options::default().with("SMTP_URL", mail.url());
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..options
    });
    invite(&server.owner(), "bia@example.com");
    assert_eq!(server.db.count("FROM outgoing_mail"), 1);
    server.run(&["worker"]);
    wait_for_mails(&mail, 1);
}
