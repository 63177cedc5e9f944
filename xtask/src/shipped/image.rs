//! Builds the image of docs/operating/Containerfile with buildah, and runs the product's server from it.
//!
//! A build machine reaches package registries only, so the base images are made of Debian's packages under the names of
//! the Containerfile. In the build stage, `cargo` is a script. It accepts the release command only, requires every source
//! file that the program depends on, and provides the program of the step `build`: a release build takes many minutes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use recado_testkit::scratch::Scratch;
use recado_testkit::services::find;
use recado_testkit::{paths, process};

use super::buildah::Buildah;
use super::container;
use crate::outcome::Skipped;

pub(super) const CONTAINERFILE: &str = "docs/operating/Containerfile";

/// The command that builds a release.
const RELEASE: &str = "cargo build --release --locked --package recado-server --bin recado";

const IMAGE: &str = "recado";

/// The `cargo` of the build stage.
const CARGO: &str = r#"#!/bin/sh
set -eu
if [ "cargo $*" != "$(cat /gate/command)" ]; then
    echo "the image is not built as a release: cargo $*" >&2
    exit 1
fi
while read -r file; do
    if [ ! -e "$file" ]; then
        echo "the build stage lacks $file" >&2
        exit 1
    fi
done < /gate/inputs
mkdir -p target/release
cp /gate/recado target/release/recado
"#;

/// Builds the image and runs it. Skipped where buildah or Debian's packages cannot be had.
pub(crate) fn check() -> Result<Vec<Skipped>> {
    let (buildah, debian) = match tools() {
        Ok(tools) => tools,
        Err(failure) => return Ok(vec![Skipped::new(CONTAINERFILE, format!("{failure:#}"))]),
    };
    let scratch = Scratch::named("image")?;
    let buildah = Buildah {
        program: buildah,
        storage: scratch.dir.join("storage"),
    };
    let containerfile = paths::root().join(CONTAINERFILE);
    let text = fs::read_to_string(&containerfile).with_context(|| format!("cannot read {CONTAINERFILE}"))?;
    let Some((rust, base)) = base_images(&text) else {
        bail!("{CONTAINERFILE} does not have a build stage of Rust and a stage of debian:{SUITE}-slim");
    };
    build_base(&buildah, base, &debian, &scratch.dir)?;
    build_rust(&buildah, rust, base, &scratch.dir)?;
    buildah.build(IMAGE, &containerfile, &paths::root())?;
    container::check(&buildah, IMAGE)?;
    Ok(Vec::new())
}

/// The Debian release of the base images.
const SUITE: &str = "trixie";

/// The program buildah, and an archive of a minimal Debian.
fn tools() -> Result<(PathBuf, PathBuf)> {
    if !paths::is_root()? {
        bail!("only root can build the base images");
    }
    let buildah = find::program_or_install("buildah", "buildah")?;
    let bootstrap = find::program_or_install("mmdebstrap", "mmdebstrap")?;
    let cache = paths::cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let archive = cache.join(format!("debian-{SUITE}.tar"));
    if !archive.is_file() {
        println!("making the base image of Debian {SUITE} (mmdebstrap)");
        let fresh = archive.with_extension(format!("{}.tar", std::process::id()));
        let mut make = Command::new(bootstrap);
        make.args(["--variant=essential", "--include=passwd", SUITE])
            .arg(&fresh);
        let made = process::quietly(&mut make, "mmdebstrap");
        // Rename only a complete archive, so that later runs do not use a partial one.
        let complete = made.and_then(|_| fs::rename(&fresh, &archive).context("cannot rename the archive"));
        if complete.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        complete?;
    }
    Ok((buildah, archive))
}

/// The images of the two stages: that of Rust, and that of Debian.
fn base_images(containerfile: &str) -> Option<(&str, &str)> {
    let mut images = containerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next());
    let (rust, base) = (images.next()?, images.next()?);
    let is_known = rust.ends_with(&format!("-slim-{SUITE}")) && base.ends_with(&format!("/debian:{SUITE}-slim"));
    (is_known && images.next().is_none()).then_some((rust, base))
}

fn build_base(buildah: &Buildah, name: &str, archive: &Path, scratch: &Path) -> Result<()> {
    let context = scratch.join("debian");
    fs::create_dir_all(&context).with_context(|| format!("cannot create {}", context.display()))?;
    fs::copy(archive, context.join("debian.tar")).context("cannot copy the base image")?;
    let file = write(&context, "Containerfile", "FROM scratch\nADD debian.tar /\n")?;
    buildah.build(name, &file, &context)
}

/// The image of the build stage, whose `cargo` is the script.
fn build_rust(buildah: &Buildah, name: &str, base: &str, scratch: &Path) -> Result<()> {
    let context = scratch.join("rust");
    fs::create_dir_all(&context).with_context(|| format!("cannot create {}", context.display()))?;
    let cargo = write(&context, "cargo", CARGO)?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).context("cannot make the script executable")?;
    write(&context, "command", RELEASE)?;
    let dependencies = paths::built("recado.d");
    let dependencies =
        fs::read_to_string(&dependencies).with_context(|| format!("cannot read {}", dependencies.display()))?;
    let inputs = inputs(&dependencies, &paths::root());
    println!("the build stage needs {} files", inputs.len());
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    write(&context, "inputs", &(inputs.join("\n") + "\n"))?;
    fs::copy(paths::built("recado"), context.join("recado")).context("cannot copy the program")?;
    let text = format!("FROM {base}\nCOPY cargo /usr/local/bin/cargo\nCOPY command inputs recado /gate/\n");
    let file = write(&context, "Containerfile", &text)?;
    buildah.build(name, &file, &context)
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = dir.join(name);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// The files of the repository that the program depends on, from cargo's list of them, and the manifests.
fn inputs(dependencies: &str, root: &Path) -> BTreeSet<String> {
    let root = format!("{}/", root.display());
    let listed = dependencies.split_whitespace().skip(1);
    let mut inputs: BTreeSet<String> = listed
        .filter_map(|file| file.strip_prefix(&root))
        .filter(|file| !file.starts_with("target/"))
        .map(str::to_owned)
        .collect();
    let packages: BTreeSet<String> = inputs.iter().filter_map(|file| package(file)).collect();
    inputs.extend(packages.iter().map(|package| format!("{package}/Cargo.toml")));
    inputs.extend(["Cargo.toml", "Cargo.lock"].map(str::to_owned));
    inputs
}

/// The directory of the package of a source file.
fn package(file: &str) -> Option<String> {
    let mut parts = file.split('/');
    match (parts.next()?, parts.next()?) {
        ("crates", name) => Some(format!("crates/{name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_command_is_the_same_everywhere() {
        for file in [CONTAINERFILE, "docs/releasing.md", "docs/operating/README.md"] {
            let text = fs::read_to_string(paths::root().join(file)).unwrap();
            assert!(text.contains(RELEASE), "{file} does not build with: {RELEASE}");
        }
    }

    #[test]
    fn base_images_are_those_of_the_containerfile() {
        let text = fs::read_to_string(paths::root().join(CONTAINERFILE)).unwrap();
        assert!(base_images(&text).is_some());
        assert_eq!(
            base_images("FROM a/rust:1-slim-trixie AS build\nFROM b/alpine:3\n"),
            None
        );
    }

    #[test]
    fn build_inputs_are_relative_and_include_manifests() {
        let dependencies = "/r/target/debug/recado: /r/crates/a/src/lib.rs /r/crates/a/../../migrations/x /usr/b.rs \
                            /r/target/debug/out.rs\n";
        let inputs = inputs(dependencies, Path::new("/r"));
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let expected = [
            "Cargo.lock",
            "Cargo.toml",
            "crates/a/../../migrations/x",
            "crates/a/Cargo.toml",
            "crates/a/src/lib.rs",
        ];
        assert_eq!(inputs, expected);
    }
}
