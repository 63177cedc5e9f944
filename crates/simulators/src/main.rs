//! Runs all simulators in one process for development: reads the environment, starts them, ends on a signal.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command writes to its terminal"
)]

use std::process::ExitCode;

use recado_simulators::{ai, payment, receiver, smtp, whatsapp};
use tokio::signal::unix::{SignalKind, signal};

struct Settings {
    whatsapp: whatsapp::WhatsappOptions,
    payment: payment::PaymentOptions,
    ai: ai::AiOptions,
    smtp: smtp::SmtpOptions,
    receiver: receiver::ReceiverOptions,
}

/// Reads a variable. Adds its name to `missing` if it is empty or not set.
fn variable(name: &'static str, missing: &mut Vec<&'static str>) -> String {
    let value = std::env::var(name).unwrap_or_default();
    if value.is_empty() {
        missing.push(name);
    }
    value
}

fn settings() -> Result<Settings, Vec<&'static str>> {
    let mut missing = Vec::new();
    let mut read = |name| variable(name, &mut missing);
    let settings = Settings {
        whatsapp: whatsapp::WhatsappOptions {
            bind: read("SIM_WHATSAPP_BIND"),
            app_secret: read("SIM_WHATSAPP_APP_SECRET"),
            callback_url: Some(read("SIM_WHATSAPP_CALLBACK_URL")),
            ..whatsapp::WhatsappOptions::development()
        },
        payment: payment::PaymentOptions {
            bind: read("SIM_PAYMENT_BIND"),
            api_key: read("SIM_PAYMENT_API_KEY"),
            webhook_url: Some(read("SIM_PAYMENT_WEBHOOK_URL")),
            webhook_token: read("SIM_PAYMENT_WEBHOOK_TOKEN"),
            ..payment::PaymentOptions::development()
        },
        ai: ai::AiOptions {
            bind: read("SIM_AI_BIND"),
            ..ai::AiOptions::default()
        },
        smtp: smtp::SmtpOptions {
            bind: read("SIM_SMTP_BIND"),
            prints: true,
            ..smtp::SmtpOptions::default()
        },
        receiver: receiver::ReceiverOptions {
            bind: read("SIM_RECEIVER_BIND"),
            ..receiver::ReceiverOptions::default()
        },
    };
    if missing.is_empty() { Ok(settings) } else { Err(missing) }
}

fn run(settings: Settings) -> std::io::Result<()> {
    actix_web::rt::System::new().block_on(async {
        // Install the signal handlers before printing "ready", so that no later signal is lost.
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let whatsapp = whatsapp::Whatsapp::start(settings.whatsapp)?;
        let payment = payment::PaymentSimulator::start(settings.payment)?;
        let ai = ai::Ai::start(settings.ai)?;
        let smtp = smtp::Smtp::start(settings.smtp)?;
        let receiver = receiver::Receiver::start(settings.receiver)?;
        println!(
            "whatsapp {}\npayment {}\nai {}\nsmtp {}\nreceiver {}\nready",
            whatsapp.base_url(),
            payment.base_url(),
            ai.base_url(),
            smtp.url(),
            receiver.origin()
        );
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn main() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(missing) => {
            eprintln!("missing environment variables: {}", missing.join(", "));
            return ExitCode::from(2);
        }
    };
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
