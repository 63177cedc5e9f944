//! Does the mail server accept a connection, with TLS and a login as configured?

use std::time::Duration;

use recado_gateways::mail::{SmtpConfigError, SmtpMailer};

use super::context::{AreaOutcome, DoctorContext};
use super::diagnosis::Diagnosis;

const NAME: &str = "mail";

/// Shorter than the time limit of an area, so that its line has the reason.
const TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let config = context.config(&["SMTP_URL", "MAIL_FROM"])?;
    let Some(url) = &config.smtp_url else {
        return Ok(vec![Diagnosis::ok(NAME, "SMTP_URL is not set: no mail is sent")]);
    };
    let tested = match SmtpMailer::new(url, &config.mail_from) {
        Ok(mailer) => mailer.timeout(TIMEOUT).test_connection().await,
        Err(error @ SmtpConfigError::From) => Err(format!("MAIL_FROM {error}")),
        Err(error) => Err(format!("SMTP_URL {error}")),
    };
    Ok(vec![match tested {
        Ok(()) => Diagnosis::ok(NAME, "the mail server accepts connection and login"),
        Err(error) => Diagnosis::fail(
            NAME,
            format!("no mail can be sent: {error}"),
            "check SMTP_URL: host, port, ?tls=, user and password; and MAIL_FROM",
        ),
    }])
}
