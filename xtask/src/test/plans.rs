//! Runs the plan tests (`crates/postgres/tests/it/plan_stability/mod.rs`) on other versions of PostgreSQL, because even a
//! minor version has changed a plan before.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use recado_testkit::paths;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::find;
use recado_testkit::services::postgres::{Cluster, Purpose};
use recado_testkit::services::versions::{self, Version};

use super::counts::{Counts, counted};
use super::services::TestServices;
use crate::outcome::Skipped;

/// The major version whose newest minor version the gate runs, besides the installed version. `stress versions` runs all.
const GATE: [u32; 1] = [18];

/// All supported major versions.
const ALL: [u32; 4] = [15, 16, 17, 18];

/// A version on which the tests passed while they failed two minor versions later.
const EARLIER: Version = Version { major: 15, minor: 18 };

const TESTS: &str = "plan_stability::";

/// The step of `cargo xtask test`. It is skipped where other versions cannot be had, for example without npm.
pub(super) fn check(services: &TestServices) -> Result<Vec<Skipped>> {
    let found = find::postgres()?.and_then(|bin| Version::of(&bin));
    println!("{TESTS} ran on the installed version, {}", named(found));
    match newest(&GATE) {
        Ok(versions) => {
            run_on(services, versions.into_iter().filter(|bin| Version::of(bin) != found))?;
            Ok(Vec::new())
        }
        Err(failure) => Ok(vec![Skipped::new(
            &format!("{TESTS} on the newest of {GATE:?}"),
            format!("{failure:#}"),
        )]),
    }
}

/// `cargo xtask stress versions`.
pub(crate) fn check_all_versions() -> Result<()> {
    let services = TestServices::start()?;
    let mut all = vec![find::postgres_or_install()?, versions::exactly(EARLIER)?];
    all.extend(newest(&ALL)?);
    run_on(&services, all.into_iter())
}

fn newest(majors: &[u32]) -> Result<Vec<PathBuf>> {
    majors.iter().map(|major| versions::newest(*major)).collect()
}

fn named(version: Option<Version>) -> String {
    version.map_or_else(|| "of another machine".to_owned(), |version| version.to_string())
}

fn run_on(services: &TestServices, versions: impl Iterator<Item = PathBuf>) -> Result<()> {
    let mut failed = Vec::new();
    for bin in versions {
        let (version, began, mut counts) = (named(Version::of(&bin)), Instant::now(), Counts::default());
        let outcome = run(services, &bin, &mut counts);
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "PostgreSQL {version} ({}): {TESTS} {} passed, {} failed, {seconds:.1} s",
            bin.display(),
            counts.passed,
            counts.failed
        );
        if let Err(failure) = outcome {
            failed.push(format!("PostgreSQL {version}: {failure:#}"));
        } else if counts.passed == 0 {
            failed.push(format!("PostgreSQL {version}: no test matches {TESTS}"));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!(failed.join("; ")),
    }
}

/// Uses the features of the whole workspace, so that nothing is rebuilt.
fn run(services: &TestServices, bin: &Path, counts: &mut Counts) -> Result<()> {
    let scratch = Scratch::in_memory_named("plans")?;
    let cluster = Cluster::start_with(bin.to_owned(), &scratch.dir.join("postgres"), Purpose::Tests)?;
    let mut test = paths::cargo();
    test.args(["test", "--workspace", "--test", "it", "--quiet", "--", TESTS]);
    for (name, value) in services.environment() {
        test.env(name, value);
    }
    test.env("TEST_DATABASE_URL", cluster.url("postgres"))
        .env("PG_BIN", bin);
    counted(&mut test, counts)
}
