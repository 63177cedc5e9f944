//! `systemd-analyze verify` on docs/operating/recado.service, with the built program in place of the installed one.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::paths;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::find;

use crate::outcome::Skipped;

const UNIT: &str = "docs/operating/recado.service";

/// The path of the program in the unit.
const PROGRAM: &str = "/usr/local/bin/recado";

/// Fails if systemd does not understand every line of the unit.
pub(crate) fn check() -> Result<Vec<Skipped>> {
    let analyze = match find::program_or_install("systemd-analyze", "systemd") {
        Ok(program) => program,
        Err(failure) => return Ok(vec![Skipped::new(UNIT, format!("{failure:#}"))]),
    };
    let text = fs::read_to_string(paths::root().join(UNIT)).with_context(|| format!("cannot read {UNIT}"))?;
    let scratch = Scratch::named("unit")?;
    let unit = scratch.dir.join("recado.service");
    let program = paths::built("recado").display().to_string();
    fs::write(&unit, text.replace(PROGRAM, &program)).with_context(|| format!("cannot write {}", unit.display()))?;
    let mut verify = Command::new(analyze);
    let out = verify.args(["verify", "--man=no"]).arg(&unit).output();
    let out = out.context("cannot run systemd-analyze")?;
    // It succeeds when it ignores a line that it does not understand.
    let messages = String::from_utf8_lossy(&out.stderr).into_owned();
    let findings: Vec<&str> = messages
        .lines()
        .filter(|line| line.contains("recado.service"))
        .collect();
    match findings.is_empty() && out.status.success() {
        true => Ok(Vec::new()),
        false => bail!("{UNIT}: {messages}"),
    }
}
