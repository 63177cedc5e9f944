//! `cargo xtask tidy`: rules about the structure of this repository that no compiler checks.
//!
//! They cover dependencies between crates and between files, the reach of `domain`, the length of files and functions, module docs, manifests,
//! blocking migrations, SQL and dead links in the documentation.

mod circles;
mod edges;
mod faults;
mod finding;
mod imports;
mod layout;
mod links;
mod manifests;
mod migrations;
mod names;
mod secrets;
mod sources;
mod sql_rules;
mod tokens;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process};
use serde_json::Value;

/// `cargo xtask tidy`.
pub(crate) fn run() -> Result<()> {
    let root = paths::root();
    let files = files(&root)?;
    let mut findings = layout::check(&files);
    let packages = packages(&root)?;
    findings.extend(edges::check(&packages));
    findings.extend(edges::domain_reach(&tree()?));
    findings.extend(faults::check(&root));
    let mut type_names = names::TypeNames::default();
    let mut rust_files = Vec::new();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            // The file is deleted but not committed yet, or is not text.
            continue;
        };
        if file.ends_with(".rs") {
            findings.extend(sources::check(file, &text));
            findings.extend(secrets::check(file, &text));
            findings.extend(sql_rules::check_statements(file, &text));
            type_names.add(file, &text);
            rust_files.push((file.clone(), text));
        } else if file.ends_with(".md") {
            findings.extend(links::check(&root, file, &text));
            findings.extend(layout::unmapped(file, &text, &files));
            findings.extend(layout::unlisted(file, &text, &files));
        } else if file.ends_with("/up.sql") {
            let metadata = root.join(file).with_file_name("metadata.toml");
            let metadata = std::fs::read_to_string(metadata).unwrap_or_default();
            findings.extend(migrations::check(file, &text, &metadata));
            findings.extend(sql_rules::check_migration(file, &text));
        } else if file == "migrations/functions.sql" {
            findings.extend(sql_rules::check_migration(file, &text));
        } else if file.ends_with("Cargo.toml") && file != "Cargo.toml" {
            findings.extend(manifests::check(file, &text));
        }
    }
    findings.extend(type_names.check());
    findings.extend(circles::check(&rust_files));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("1 rule is broken"),
        count => bail!("{count} rules are broken"),
    }
}

/// Every file that is or could be committed, relative to the root.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    // On a build machine, the user of the checkout may differ from that of the build.
    git.arg("-c").arg(format!("safe.directory={}", root.display()));
    git.current_dir(root)
        .args(["ls-files", "-co", "--exclude-standard", "-z"]);
    let listed = process::quietly(&mut git, "git ls-files")?;
    Ok(listed
        .split('\0')
        .filter(|file| root.join(file).is_file())
        .map(str::to_owned)
        .collect())
}

/// The workspace's packages, as cargo sees them, with paths relative to the root.
fn packages(root: &Path) -> Result<Vec<edges::Package>> {
    let text = process::quietly(
        paths::cargo().args(["metadata", "--no-deps", "--format-version", "1", "--locked"]),
        "cargo metadata",
    )?;
    let metadata: Value = serde_json::from_str(&text).context("cannot read cargo metadata")?;
    Ok(edges::packages(&metadata, root))
}

/// The dependencies of `recado-domain`, one per line.
fn tree() -> Result<String> {
    let mut tree = paths::cargo();
    tree.args([
        "tree",
        "-p",
        "recado-domain",
        "-e",
        "normal",
        "--prefix",
        "none",
        "--locked",
    ]);
    process::quietly(&mut tree, "cargo tree")
}
