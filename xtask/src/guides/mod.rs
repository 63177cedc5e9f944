//! `cargo xtask guides`: runs every command of the guides and of README.md against the whole product, which it starts,
//! so that every documented command works.
//!
//! The `sh` blocks of a page run in one bash session in the root of the repository. A failing command ends it. A block
//! checks its own results (`grep -q`). Commands that cannot run here are marked `console`, and the page gives the
//! reason. A page whose programs (`<!-- needs: ... -->`) are missing on this machine is skipped.

pub(crate) mod page;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use recado_testkit::product::Product;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::find::on_path;
use recado_testkit::services::postgres::Purpose;
use recado_testkit::services::{ReservedPort, find_postgres};
use recado_testkit::state;
use recado_testkit::{paths, signals};

use crate::outcome::{self, Skipped};

/// Directory of the guides.
const PAGES: &str = "docs/guides";

/// The page that runs last, because it creates data that the others do not expect.
const LAST: &str = "README.md";

/// `cargo xtask guides [page ...]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    signals::install()?;
    outcome::finish(check(args))
}

/// Runs the pages as a step of `cargo xtask test`. After a failing page, the others still run.
/// Returns the pages that were skipped.
pub(crate) fn check(names: &[String]) -> Result<Vec<Skipped>> {
    let pages = select_pages(&all()?, names)?;
    let scratch = Scratch::named("guides")?;
    let port = ReservedPort::new()?;
    let product = Product::start(&scratch.dir, Purpose::Tests, port.address())?;
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for path in &pages {
        let (name, text) = (
            name(path),
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        );
        if let Some(missing) = page::needs(&text).iter().find(|program| on_path(program).is_none()) {
            skipped.push(Skipped::new(&name, format!("{missing} is not installed")));
            continue;
        }
        let began = Instant::now();
        match run_page(&name, &text, &product, &scratch.dir) {
            Ok(()) => println!("{name}: every command works ({:.1} s)", began.elapsed().as_secs_f64()),
            Err(failure) => failures.push(format!("{failure:#}")),
        }
    }
    match failures.is_empty() {
        true => Ok(skipped),
        false => bail!(failures.join("\n\n")),
    }
}

fn all() -> Result<Vec<PathBuf>> {
    let dir = paths::root().join(PAGES);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages.push(paths::root().join(LAST));
    Ok(pages)
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// All pages, or those with these names.
fn select_pages(pages: &[PathBuf], names: &[String]) -> Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Ok(pages.to_vec());
    }
    let find = |name_of_page: &String| match pages.iter().find(|path| name(path) == *name_of_page) {
        Some(path) => Ok(path.clone()),
        None => bail!("there is no guide {name_of_page}"),
    };
    names.iter().map(find).collect()
}

fn run_page(name: &str, text: &str, product: &Product, scratch: &Path) -> Result<()> {
    let script = page::script(text);
    let server_env = state::write_running(scratch, &product.env)?;
    let out = Command::new("bash")
        .arg("-c")
        .arg(script)
        .current_dir(paths::root())
        .envs(product.variables(&server_env)?)
        .env("PATH", programs()?)
        .output()
        .context("cannot run bash")?;
    if out.status.success() {
        return Ok(());
    }
    bail!(
        "{name}: {}\n{}",
        String::from_utf8_lossy(&out.stderr),
        String::from_utf8_lossy(&out.stdout)
    )
}

/// `PATH` with `recado` and the programs of PostgreSQL.
fn programs() -> Result<OsString> {
    let own = paths::built("recado").parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = own
        .into_iter()
        .chain(find_postgres()?)
        .chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).context("cannot extend PATH")
}
