//! Mail against a small mail server: what arrives, what does not, and what is told of it.

use std::time::{Duration, Instant};

use recado_domain::mail::{Mail, MailError, Mailer};
use recado_domain::shared::MailId;
use recado_gateways::mail::SmtpMailer;
use recado_simulators::raw::{ANYWHERE, closed_address};
use recado_simulators::smtp::{Smtp, SmtpBehavior, SmtpOptions};
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

/// What a failed sending says; it never says more than it should.
async fn failure(mailer: &SmtpMailer) -> String {
    let refused = mailer.send(ID, &mail()).await.unwrap_err();
    assert!(matches!(refused, MailError::Failed(_)), "{refused:?}");
    let cause = refused.to_string();
    for secret in ["bia", "abc", "hunter2"] {
        assert!(!cause.contains(secret), "{cause}");
    }
    cause
}

#[tokio::test]
async fn a_mail_arrives_as_it_was_written() {
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
    // Beyond ASCII a header is encoded; the body comes through whole.
    let subject = mail.header("Subject").unwrap();
    assert!(
        subject.starts_with("Join ") && subject.contains("=?utf-8?"),
        "{subject}"
    );
    assert!(mail.header("Date").is_some());
    assert_eq!(mail.text().trim_end(), self::mail().text.trim_end());
}

#[tokio::test]
async fn a_password_is_shown_to_the_server_and_to_nobody_else() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    let url = server.url().replace("smtp://", "smtp://user:hunter2@");
    mailer(&url).send(ID, &mail()).await.unwrap();
    server.set_behavior(SmtpBehavior::Refuses(550));
    failure(&mailer(&url)).await;
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn no_name_makes_a_header() {
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
async fn what_the_server_refuses_is_told_by_its_code() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    for code in [451, 550] {
        server.set_behavior(SmtpBehavior::Refuses(code));
        assert_eq!(
            failure(&mailer(&server.url())).await,
            format!("was not sent: the mail server answered {code}")
        );
    }
    assert!(server.mails().is_empty());
}

#[tokio::test]
async fn a_server_that_hangs_or_is_not_there_takes_its_time_and_no_more() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    server.set_behavior(SmtpBehavior::Hangs);
    let began = Instant::now();
    failure(&mailer(&server.url()).timeout(Duration::from_millis(300))).await;
    assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(30));
    let closed = closed_address(ANYWHERE).unwrap();
    failure(&mailer(&format!("smtp://{closed}"))).await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_a_failure_though_the_mail_arrived() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    server.set_behavior(SmtpBehavior::KeepsAndCloses);
    failure(&mailer(&server.url())).await;
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn encryption_that_is_wanted_is_not_given_up() {
    let server = Smtp::start(SmtpOptions::default()).unwrap();
    failure(&mailer(&format!("{}?tls=required", server.url()))).await;
    assert!(server.mails().is_empty());
    mailer(&format!("{}?tls=opportunistic", server.url()))
        .send(ID, &mail())
        .await
        .unwrap();
    assert_eq!(server.mails().len(), 1);
}
