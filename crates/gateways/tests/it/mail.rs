//! Tests of the SMTP mailer against the mail simulator.

use std::time::{Duration, Instant};

use recado_domain::mail::{Mail, MailError, Mailer};
use recado_domain::shared::MailId;
use recado_gateways::mail::SmtpMailer;
use recado_simulators::raw::{ANY_FREE_PORT, closed_address};
use recado_simulators::smtp::{Smtp, SmtpBehavior, SmtpOptions};
use recado_testkit::DEADLINE;
use secrecy::SecretString;
use uuid::Uuid;

const ID: MailId = MailId(Uuid::from_u128(7));

fn mailer(url: &str) -> SmtpMailer {
    let url = SecretString::from(url);
    SmtpMailer::new(&url, "Recado <no-reply@recado.example>").unwrap()
}

fn mail() -> Mail {
    Mail {
        to: "bia@example.com".into(),
        subject: "Join Café on Recado".into(),
        text: "Hello,\n\nhttps://recado.example/accept-invite?token=abc=def\n.\nAté logo\n".into(),
    }
}

/// Sends a mail that fails, and returns the error text. Asserts that it contains no secret and no address.
async fn send_error(mailer: &SmtpMailer) -> String {
    let error = mailer.send(ID, &mail()).await.unwrap_err();
    assert!(matches!(error, MailError::Failed(_)), "{error:?}");
    let text = error.to_string();
    for secret in ["bia", "abc", "hunter2"] {
        assert!(!text.contains(secret), "{text}");
    }
    text
}

#[tokio::test]
async fn mail_arrives_unchanged() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    mailer(&server.url()).send(ID, &mail()).await.unwrap();
    let [mail] = server.mails().try_into().unwrap();
    assert_eq!(mail.from, "no-reply@recado.example");
    assert_eq!(mail.to, ["bia@example.com"]);
    assert_eq!(mail.header("From").unwrap(), "Recado <no-reply@recado.example>");
    assert_eq!(mail.header("To").unwrap(), "bia@example.com");
    assert_eq!(mail.header("Message-ID").unwrap(), format!("<{ID}@recado.example>"));
    assert_eq!(mail.header("Auto-Submitted").unwrap(), "auto-generated");
    assert_eq!(mail.header("Content-Type").unwrap(), "text/plain; charset=utf-8");
    // A non-ASCII header is encoded. The body arrives unchanged.
    let subject = mail.header("Subject").unwrap();
    assert!(
        subject.starts_with("Join ") && subject.contains("=?utf-8?"),
        "{subject}"
    );
    assert!(mail.header("Date").is_some());
    assert_eq!(mail.text().trim_end(), self::mail().text.trim_end());
}

#[tokio::test]
async fn smtp_password_is_sent_but_never_reported() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    let url = server.url().replace("smtp://", "smtp://user:hunter2@");
    mailer(&url).send(ID, &mail()).await.unwrap();
    server.set_behavior(SmtpBehavior::Refuses(550));
    send_error(&mailer(&url)).await;
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn mail_text_cannot_inject_headers_or_recipients() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    let hostile = Mail {
        subject: "Join Loja\r\nBcc: all@example.com\r\n\r\nClick here".into(),
        ..mail()
    };
    mailer(&server.url()).send(ID, &hostile).await.unwrap();
    let [mail] = server.mails().try_into().unwrap();
    assert_eq!(mail.to, ["bia@example.com"]);
    assert_eq!(mail.header("Bcc"), None);
    assert!(
        !mail.headers().iter().any(|line| line.starts_with("Click")),
        "{:?}",
        mail.headers()
    );
    assert_eq!(mail.text().trim_end(), self::mail().text.trim_end());
    for to in [
        "bia@example.com\r\nRCPT TO:<all@example.com>",
        "a@b.example>\r\nDATA",
        "<>",
        "bia",
    ] {
        let hostile = Mail {
            to: to.into(),
            ..self::mail()
        };
        let refused = mailer(&server.url()).send(ID, &hostile).await;
        assert!(matches!(refused, Err(MailError::Unsendable(_))), "{to}: {refused:?}");
    }
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn refused_mail_reports_the_smtp_code() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    for code in [451, 550] {
        server.set_behavior(SmtpBehavior::Refuses(code));
        assert_eq!(
            send_error(&mailer(&server.url())).await,
            format!("was not sent: the mail server responded with {code}")
        );
    }
    assert!(server.mails().is_empty());
}

#[tokio::test]
async fn mail_to_hanging_or_absent_server_fails_in_time() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    server.set_behavior(SmtpBehavior::Hangs);
    let started = Instant::now();
    send_error(&mailer(&server.url()).timeout(Duration::from_millis(300))).await;
    assert!(started.elapsed() >= Duration::from_millis(300) && started.elapsed() < DEADLINE);
    let closed = closed_address(ANY_FREE_PORT).unwrap();
    send_error(&mailer(&format!("smtp://{closed}"))).await;
}

#[tokio::test]
async fn mail_with_lost_response_fails_though_it_arrived() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    server.set_behavior(SmtpBehavior::StoresThenCloses);
    send_error(&mailer(&server.url())).await;
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn mail_requires_tls_if_configured() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    send_error(&mailer(&format!("{}?tls=required", server.url()))).await;
    assert!(server.mails().is_empty());
    mailer(&format!("{}?tls=opportunistic", server.url()))
        .send(ID, &mail())
        .await
        .unwrap();
    assert_eq!(server.mails().len(), 1);
}
