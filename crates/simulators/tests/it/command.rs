//! The command: names missing variables, prints `ready`, ends on a signal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_recado-simulators");

const VARIABLES: [(&str, &str); 10] = [
    ("SIM_WHATSAPP_BIND", "127.0.0.1:0"),
    ("SIM_PAYMENT_BIND", "127.0.0.1:0"),
    ("SIM_AI_BIND", "127.0.0.1:0"),
    ("SIM_SMTP_BIND", "127.0.0.1:0"),
    ("SIM_RECEIVER_BIND", "127.0.0.1:0"),
    ("SIM_WHATSAPP_APP_SECRET", "secret"),
    ("SIM_WHATSAPP_CALLBACK_URL", "http://127.0.0.1:9/callback"),
    ("SIM_PAYMENT_API_KEY", "key"),
    ("SIM_PAYMENT_WEBHOOK_URL", "http://127.0.0.1:9/webhook"),
    ("SIM_PAYMENT_WEBHOOK_TOKEN", "token"),
];

#[test]
fn command_requires_every_variable() {
    for (missing, _) in VARIABLES {
        let present = VARIABLES.into_iter().filter(|(name, _)| *name != missing);
        let output = Command::new(BINARY).env_clear().envs(present).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "without {missing}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(missing));
    }
}

#[test]
fn command_prints_ready_and_ends_on_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let mut child = Command::new(BINARY)
            .env_clear()
            .envs(VARIABLES)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.into_iter().any(|line| line == "ready"));
        let sent = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}
