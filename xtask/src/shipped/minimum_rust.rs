//! The minimum Rust version (`rust-version` in Cargo.toml) compiles the workspace. It is the version of the build machine,
//! so that the other steps compile with it; on another machine rustup provides it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process};

use crate::outcome::Skipped;

/// Compiles the workspace with the minimum version, unless every other step does.
pub(crate) fn check() -> Result<Vec<Skipped>> {
    let version = version()?;
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let installed = process::quietly(Command::new(compiler).arg("--version"), "rustc --version")?;
    if is_version(&installed, &version) {
        println!("the other steps compile with {}", installed.trim());
        return Ok(Vec::new());
    }
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", &version, "--profile", "minimal"]);
    if let Err(failure) = process::quietly(&mut install, "rustup toolchain install") {
        return Ok(vec![Skipped::new(&format!("Rust {version}"), format!("{failure:#}"))]);
    }
    let mut check = Command::new("rustup");
    check.current_dir(paths::root());
    // The cargo of this process has set the variables of its own toolchain.
    check
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN");
    check.args([
        "run",
        &version,
        "cargo",
        "check",
        "--workspace",
        "--all-targets",
        "--locked",
    ]);
    check.arg("--target-dir").arg(paths::target().join("minimum-rust"));
    process::run(&mut check, "cargo check with the minimum version")?;
    Ok(Vec::new())
}

fn version() -> Result<String> {
    let text = fs::read_to_string(paths::root().join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest: toml::Table = text.parse().context("Cargo.toml is not TOML")?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")?.as_str());
    match version {
        Some(version) => Ok(version.to_owned()),
        None => bail!("Cargo.toml has no rust-version"),
    }
}

/// Whether `rustc 1.95.0 (...)` is the version `1.95`.
fn is_version(installed: &str, version: &str) -> bool {
    let mut words = installed.split_whitespace();
    words
        .nth(1)
        .is_some_and(|full| full == version || full.starts_with(&format!("{version}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_of_the_minimum_version_is_recognized() {
        assert!(is_version("rustc 1.95.0 (59807616e 2026-04-14)", "1.95"));
        assert!(!is_version("rustc 1.95.0 (59807616e 2026-04-14)", "1.9"));
        assert!(!is_version("rustc 1.97.1 (x)", "1.95"));
        assert!(!is_version("", "1.95"));
    }

    #[test]
    fn documents_name_the_minimum_version() {
        let version = version().unwrap();
        for (file, text) in [
            ("README.md", format!("({version} or later)")),
            ("docs/CONTRIBUTING.md", format!("Rust {version} or later")),
            ("docs/operating/Containerfile", format!("/rust:{version}-slim-")),
        ] {
            let page = fs::read_to_string(paths::root().join(file)).unwrap();
            assert!(page.contains(&text), "{file} does not say {text}");
        }
    }
}
