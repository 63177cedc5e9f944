//! The program of the previous version (N-1), which the tests of rolling updates run beside the new one.
//!
//! It is built from the history, in the build directory of the other steps: with the same `Cargo.lock`, only the crates
//! of this repository are compiled again. `--example` selects the features that the tests need of their libraries, as
//! in the step `build`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use recado_testkit::{paths, process};

use crate::outcome::Skipped;

/// The commit of the previous version. Each release replaces it by the commit of the release before.
const COMMIT: &str = "0dc625f1b5ec119e83f35207e9787ef80926b60e";

/// Builds the program, unless it is built. It becomes `target/previous/recado`.
pub(crate) fn build() -> Result<Vec<Skipped>> {
    let dir = paths::target().join("previous");
    let (program, built) = (dir.join("recado"), dir.join("commit"));
    if program.is_file() && fs::read_to_string(&built).is_ok_and(|commit| commit == COMMIT) {
        println!("{} is built", program.display());
        return Ok(Vec::new());
    }
    if let Err(failure) = fetch() {
        return Ok(vec![Skipped::new("the previous version", format!("{failure:#}"))]);
    }
    let source = dir.join("source");
    extract(&source)?;
    let mut build = paths::cargo();
    build.current_dir(&source);
    build.args(["build", "--locked", "--workspace", "--bin", "recado"]);
    build.args(["--example", "bare", "--target-dir"]);
    process::run(build.arg(paths::target()), "cargo build of the previous version")?;
    // The step `build` puts the current program back.
    fs::copy(paths::built("recado"), &program).with_context(|| format!("cannot write {}", program.display()))?;
    fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    fs::write(&built, COMMIT)
        .with_context(|| format!("cannot write {}", built.display()))
        .map(|()| Vec::new())
}

/// Fetches the commit if the history of this checkout does not reach it.
fn fetch() -> Result<()> {
    let exists = format!("{COMMIT}^{{commit}}");
    if process::quietly(git().args(["cat-file", "-e", &exists]), "git cat-file").is_ok() {
        return Ok(());
    }
    process::quietly(git().args(["fetch", "--depth", "1", "origin", COMMIT]), "git fetch").map(drop)
}

fn extract(source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    fs::create_dir_all(source).with_context(|| format!("cannot create {}", source.display()))?;
    let archive = source.join("source.tar");
    process::quietly(
        git().args(["archive", "--output"]).arg(&archive).arg(COMMIT),
        "git archive",
    )?;
    let mut tar = Command::new("tar");
    process::quietly(tar.arg("-xf").arg(&archive).arg("-C").arg(source), "tar").map(drop)
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(paths::root());
    git
}
