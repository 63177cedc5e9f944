//! `Mailer` over SMTP: one connection per mail, with TLS unless the configured URL says otherwise.

mod url;

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use hyper::Uri;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use recado_domain::mail::{Mail, MailError, Mailer};
use recado_domain::shared::MailId;
use secrecy::{ExposeSecret, SecretString};
use tracing::Instrument as _;

pub use self::url::{SmtpConfigError, SmtpServer, SmtpTls};
use crate::meter::{CallOutcome, Meter};
use crate::tls;

/// Time limit of connecting, and default time limit of a whole mail.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct SmtpMailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    timeout: Duration,
    meter: Meter,
}

impl SmtpMailer {
    /// `url` is the server, `from` the sender. Trusts the authorities of the process. Does not connect before the first
    /// mail.
    pub fn new(url: &SecretString, from: &str) -> Result<Self, SmtpConfigError> {
        let from: Mailbox = from.trim().parse().map_err(|_| SmtpConfigError::From)?;
        let mut builder = url::transport(url, tls::authorities())?;
        let url = url.expose_secret().trim();
        // A path in the URL is the name for EHLO.
        if !url.parse::<Uri>().is_ok_and(|uri| uri.path().len() > 1) {
            builder = builder.hello_name(ehlo_name(from.email.domain()));
        }
        Ok(Self {
            transport: builder.timeout(Some(TIMEOUT)).build(),
            from,
            timeout: TIMEOUT,
            meter: Meter::new("smtp"),
        })
    }

    /// Sets the time limit of a whole mail. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Connects, negotiates TLS and authenticates as for a mail, and sends none.
    pub async fn test_connection(&self) -> Result<(), String> {
        match tokio::time::timeout(self.timeout, self.transport.test_connection()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("the mail server closed the connection".to_owned()),
            Ok(Err(error)) => Err(failure_reason(&error)),
            Err(_) => Err(format!("the mail server did not respond within {:?}", self.timeout)),
        }
    }

    fn message(&self, id: MailId, mail: &Mail) -> Result<Message, MailError> {
        let to: Address = mail
            .to
            .parse()
            .map_err(|_| MailError::Unsendable("the recipient's address is not valid"))?;
        let automatic = HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        );
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(&mail.subject)
            .message_id(Some(format!("<{id}@{}>", self.from.email.domain())))
            .raw_header(automatic)
            .header(ContentType::TEXT_PLAIN)
            .body(mail.text.clone())
            .map_err(|_| MailError::Unsendable("the message cannot be built"))
    }
}

#[async_trait]
impl Mailer for SmtpMailer {
    async fn send(&self, id: MailId, mail: &Mail) -> Result<(), MailError> {
        let message = self.message(id, mail)?;
        let call = self.meter.begin();
        let exchange = self.transport.send(message).instrument(call.span());
        let result = tokio::time::timeout(self.timeout, exchange).await;
        call.end(match &result {
            Ok(Ok(_)) => CallOutcome::Done,
            Ok(Err(error)) => call_outcome(error),
            Err(_) => CallOutcome::NoResponse,
        });
        match result {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(MailError::Failed(failure_reason(&error))),
            Err(_) => Err(MailError::Failed(format!(
                "the mail server did not finish within {:?}",
                self.timeout
            ))),
        }
    }
}

fn call_outcome(error: &Error) -> CallOutcome {
    if error.is_permanent() {
        CallOutcome::Refused
    } else if error.is_transient() {
        CallOutcome::Throttled
    } else if error.is_response() {
        CallOutcome::Failed
    } else {
        CallOutcome::NotSent
    }
}

/// The name for EHLO: the sender's domain, or an address literal if that is an IP address.
fn ehlo_name(domain: &str) -> ClientId {
    match domain.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(address)) => ClientId::Ipv4(address),
        Ok(IpAddr::V6(address)) => ClientId::Ipv6(address),
        Err(_) => ClientId::Domain(domain.to_owned()),
    }
}

/// The reason without the server's text, which repeats recipients and may repeat anything else.
fn failure_reason(error: &Error) -> String {
    match error.status() {
        Some(code) => format!("the mail server responded with {code}"),
        None if error.is_response() => "the mail server's response cannot be read".to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailer(url: &str, from: &str) -> Result<SmtpMailer, SmtpConfigError> {
        SmtpMailer::new(&SecretString::from(url), from)
    }

    #[tokio::test]
    async fn mailer_accepts_every_form_of_url_and_sender() {
        for url in [
            "smtp://mail.example",
            "smtp://user:p%40ss@mail.example:587?tls=required",
            "smtp://user:pass@mail.example:587/me.example?tls=opportunistic",
            "smtp://mail.example?tls=none",
            "smtps://user:pass@mail.example:465",
            "smtp://[::1]:2525",
        ] {
            assert!(mailer(url, "Recado <no-reply@recado.example>").is_ok(), "{url}");
        }
        for from in [
            "no-reply@localhost",
            "Recado <no-reply@localhost>",
            "\"Recado, Inc.\" <a@b.example>",
        ] {
            assert!(mailer("smtp://mail.example", from).is_ok(), "{from}");
        }
    }

    #[tokio::test]
    async fn invalid_smtp_config_error_hides_the_value() {
        for url in [
            "smtp://",
            "http://user:hunter2@mail.example",
            "smtp://u:hunter2@mail.example?tls=no",
            "smtp://u:hunter2@mail.example:port",
        ] {
            let error = mailer(url, "a@b.example").err().unwrap();
            assert_eq!(error, SmtpConfigError::Url, "{url}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
        for from in ["", "Recado", "Recado <>", "a b@c d", "a@[127.0.0.1]"] {
            assert_eq!(
                mailer("smtp://mail.example", from).err(),
                Some(SmtpConfigError::From),
                "{from}"
            );
        }
    }

    #[test]
    fn ehlo_name_of_ip_address_is_a_literal() {
        assert_eq!(ehlo_name("recado.example").to_string(), "recado.example");
        assert_eq!(ehlo_name("[127.0.0.1]").to_string(), "[127.0.0.1]");
        assert_eq!(ehlo_name("::1").to_string(), "[IPv6:::1]");
    }
}
