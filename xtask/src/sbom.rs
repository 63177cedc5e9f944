//! `cargo xtask sbom`: writes the software bill of materials of the server, in the format CycloneDX 1.6.
//!
//! It lists the packages that are compiled into the binary `recado`, with all features and for Linux: no packages of
//! tests, build scripts or this tool. `cargo tree` names them, because `cargo metadata` enables the features of all
//! crates of the workspace at once. `cargo metadata` has their licences, and `Cargo.lock` their hashes.

#![allow(clippy::indexing_slicing, reason = "an absent key of a JSON value is null")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use recado_testkit::{paths, process};
use serde_json::{Map, Value, json};

const ROOT: &str = "recado-server";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// `cargo xtask sbom`.
pub(crate) fn run() -> Result<()> {
    let bom = generate()?;
    let file = path();
    let text = serde_json::to_string_pretty(&bom).context("cannot serialize the bill of materials")?;
    fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    println!("{} components: {}", components(&bom).len(), file.display());
    Ok(())
}

/// Writes the bill of materials. Fails if it lacks a package that is shipped, or the hash of a package.
pub(crate) fn check() -> Result<()> {
    run()?;
    let text = fs::read_to_string(path()).context("cannot read the bill of materials")?;
    let bom: Value = serde_json::from_str(&text).context("the bill of materials is not JSON")?;
    match gaps(&bom, &tree()?).as_slice() {
        [] => Ok(()),
        gaps => bail!("the bill of materials has gaps: {}", gaps.join(", ")),
    }
}

fn path() -> PathBuf {
    paths::target().join("recado.cdx.json")
}

fn generate() -> Result<Value> {
    let mut metadata = paths::cargo();
    metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let text = process::quietly(metadata.args(["--filter-platform", TARGET]), "cargo metadata")?;
    let metadata: Value = serde_json::from_str(&text).context("cannot read cargo metadata")?;
    let lock = paths::root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    bill(&metadata, &checksums(&lock), &tree()?)
}

/// The bill of materials of the `shipped` packages. `checksums` are the hashes by name and version.
fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>, shipped: &BTreeSet<String>) -> Result<Value> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .filter(|package| package["name"] == ROOT || shipped.contains(&label(package)))
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let Some(root) = packages.values().find(|package| package["name"] == ROOT) else {
        bail!("cargo metadata has no package {ROOT}");
    };
    let parts = packages.values().filter(|package| package["name"] != ROOT);
    let components: Vec<Value> = parts.map(|package| component(package, checksums)).collect();
    let dependencies = list(&metadata["resolve"]["nodes"]).filter_map(|node| {
        let package = packages.get(node["id"].as_str()?)?;
        let depends_on: Vec<String> = normal_dependencies(node)
            .filter_map(|id| packages.get(id).map(|package| purl(package)))
            .collect();
        Some(json!({ "ref": purl(package), "dependsOn": depends_on }))
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": application(root) },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// The dependencies that are neither for tests nor for build scripts only.
fn normal_dependencies(node: &Value) -> impl Iterator<Item = &str> {
    list(&node["deps"])
        .filter(|dependency| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()))
        .filter_map(|dependency| dependency["pkg"].as_str())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn application(package: &Value) -> Value {
    json!({ "type": "application", "bom-ref": purl(package), "name": "recado", "version": package["version"],
            "licenses": licenses(package) })
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut component = Map::new();
    component.insert("type".into(), json!("library"));
    component.insert("bom-ref".into(), json!(purl(package)));
    component.insert("name".into(), package["name"].clone());
    component.insert("version".into(), package["version"].clone());
    component.insert("purl".into(), json!(purl(package)));
    component.insert("licenses".into(), licenses(package));
    let key = (text(&package["name"]), text(&package["version"]));
    if let Some(checksum) = checksums.get(&key) {
        component.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": checksum }]));
    }
    if let Some(repository) = package["repository"].as_str() {
        let reference = json!([{ "type": "vcs", "url": repository }]);
        component.insert("externalReferences".into(), reference);
    }
    Value::Object(component)
}

/// The SPDX expression. Old packages separate alternatives by a slash.
fn licenses(package: &Value) -> Value {
    match package["license"].as_str() {
        Some(license) => {
            let parts: Vec<&str> = license.split('/').map(str::trim).collect();
            json!([{ "expression": parts.join(" OR ") }])
        }
        None => json!([]),
    }
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The hashes of the packages in `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut checksums = BTreeMap::new();
    let (mut name, mut version) = (String::new(), String::new());
    for line in lock.lines() {
        let value = |key: &str| {
            line.strip_prefix(key)?
                .strip_prefix(" = \"")?
                .strip_suffix('"')
                .map(str::to_owned)
        };
        if let Some(found) = value("name") {
            name = found;
        } else if let Some(found) = value("version") {
            version = found;
        } else if let Some(checksum) = value("checksum") {
            checksums.insert((name.clone(), version.clone()), checksum);
        }
    }
    checksums
}

/// `name version` of every component.
fn components(bom: &Value) -> BTreeSet<String> {
    list(&bom["components"]).map(label).collect()
}

/// `name version` of a package or component.
fn label(package: &Value) -> String {
    format!("{} {}", text(&package["name"]), text(&package["version"]))
}

/// `name version` of the packages that `cargo tree` finds, without the server itself.
fn tree() -> Result<BTreeSet<String>> {
    let mut tree = paths::cargo();
    tree.args([
        "tree",
        "--locked",
        "--package",
        ROOT,
        "--all-features",
        "--edges",
        "normal",
    ]);
    tree.args(["--target", TARGET, "--prefix", "none", "--format", "{p}"]);
    let text = process::quietly(&mut tree, "cargo tree")?;
    Ok(tree_packages(&text))
}

fn tree_packages(text: &str) -> BTreeSet<String> {
    let packages = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some(format!("{name} {version}"))
    });
    packages
        .filter(|package| !package.starts_with(&format!("{ROOT} ")))
        .collect()
}

/// What is missing in the bill of materials: shipped packages, and hashes of packages that are not ours.
fn gaps(bom: &Value, shipped: &BTreeSet<String>) -> Vec<String> {
    let listed = components(bom);
    let missing = shipped
        .difference(&listed)
        .map(|package| format!("{package} is missing"));
    let unhashed = list(&bom["components"])
        .filter(|component| component["hashes"].is_null() && !text(&component["name"]).starts_with("recado-"))
        .map(|component| format!("{} has no hash", label(component)));
    missing.chain(unhashed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"serde\"\nversion = \"1.0.1\"\nsource = \"r\"\nchecksum = \"ab12\"\n\n\
                        [[package]]\nname = \"recado-server\"\nversion = \"0.1.0\"\n";

    fn metadata() -> Value {
        let package = |name: &str, version: &str| {
            json!({ "id": name, "name": name, "version": version, "license": "MIT/Apache-2.0",
                    "repository": null })
        };
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [package(ROOT, "0.1.0"), package("serde", "1.0.1"), package("derive", "2.0.0"),
                         package("proptest", "1.0.0"), package("cc", "1.0.0")],
            "resolve": { "nodes": [
                { "id": ROOT, "deps": [dependency("serde", Value::Null), dependency("proptest", json!("dev")),
                                        dependency("cc", json!("build"))] },
                { "id": "serde", "deps": [dependency("derive", Value::Null)] },
                { "id": "derive", "deps": [] },
                { "id": "proptest", "deps": [] },
                { "id": "cc", "deps": [] },
            ] },
        })
    }

    #[test]
    fn bill_names_what_is_shipped_with_hashes_and_licences() {
        let shipped = BTreeSet::from(["derive 2.0.0".to_owned(), "serde 1.0.1".to_owned()]);
        let bom = bill(&metadata(), &checksums(LOCK), &shipped).unwrap();
        assert_eq!(
            (&bom["bomFormat"], &bom["specVersion"]),
            (&json!("CycloneDX"), &json!("1.6"))
        );
        let names: Vec<String> = components(&bom).into_iter().collect();
        assert_eq!(names, ["derive 2.0.0", "serde 1.0.1"]);
        let serde = list(&bom["components"])
            .find(|component| component["name"] == "serde")
            .unwrap();
        assert_eq!(serde["hashes"], json!([{ "alg": "SHA-256", "content": "ab12" }]));
        assert_eq!(serde["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
        assert_eq!(serde["purl"], "pkg:cargo/serde@1.0.1");
        let root = list(&bom["dependencies"]).find(|entry| entry["ref"] == "pkg:cargo/recado-server@0.1.0");
        assert_eq!(root.unwrap()["dependsOn"], json!(["pkg:cargo/serde@1.0.1"]));
        assert!(bill(&json!({ "packages": [] }), &BTreeMap::new(), &shipped).is_err());
    }

    #[test]
    fn gaps_name_missing_packages_and_hashes() {
        let tree =
            "recado-server v0.1.0 (/x)\nserde v1.0.1 (proc-macro)\nserde v1.0.1 (*)\nlibc v0.2.0\nderive v2.0.0\n";
        let shipped = tree_packages(tree);
        let listed: Vec<&str> = shipped.iter().map(String::as_str).collect();
        assert_eq!(listed, ["derive 2.0.0", "libc 0.2.0", "serde 1.0.1"]);
        let bom = bill(&metadata(), &checksums(LOCK), &shipped).unwrap();
        assert_eq!(
            gaps(&bom, &shipped),
            ["libc 0.2.0 is missing", "derive 2.0.0 has no hash"]
        );
    }
}
