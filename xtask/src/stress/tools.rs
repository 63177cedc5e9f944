//! Stress suites that run other tools. A missing tool is reported with the command that installs it.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use recado_testkit::{paths, process};

use crate::deny;
use crate::deny::Advisories;

/// Sources of permissions, limits and state transitions: the tests must detect every mutation of them.
const GUARDS: &[&str] = &[
    "crates/domain/src/campaigns/status.rs",
    "crates/domain/src/campaigns/outcome.rs",
    "crates/domain/src/messaging/outcome.rs",
    "crates/domain/src/billing/status.rs",
    "crates/domain/src/limits/in_process.rs",
    "crates/domain/src/team/*.rs",
    "crates/domain/src/egress/*.rs",
];

fn is_installed(program: &str) -> bool {
    let status = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Checks the rules of `.deny.toml` with the current advisories. Fails if the advisory database is not reachable.
pub(super) fn supply() -> Result<()> {
    deny::check(Advisories::Online)
}

/// Mutates the guards one by one. Fails if the tests do not detect a mutation.
pub(super) fn mutants() -> Result<()> {
    if !is_installed("cargo-mutants") {
        bail!("cargo install cargo-mutants --locked");
    }
    let mut mutants = paths::cargo();
    mutants.args(["mutants", "--package", "recado-domain"]);
    for guard in GUARDS {
        mutants.args(["--file", guard]);
    }
    // Only the unit tests of the domain, so that nothing else is built.
    mutants.args(["--", "--lib"]);
    process::run(&mut mutants, "cargo mutants")
}
