//! `cargo xtask clients`: generates typed clients from the OpenAPI document into `target/clients`, compiles them, and
//! runs the README's main job with each against the whole product.
//!
//! The generators are the usual ones of each language, in pinned versions from npm and PyPI. What a generator cannot
//! use is changed in the document, not in the generated code; `PARTS` is the exception.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use recado_testkit::product::Product;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::ReservedPort;
use recado_testkit::services::find::on_path;
use recado_testkit::services::postgres::Purpose;
use recado_testkit::{paths, process, signals, state};

use crate::outcome::{self, Skipped};

/// The programs that use the clients, and the pinned versions of the generators.
const EXAMPLES: &str = "docs/examples/clients";

const CONTACTS: &str = "docs/examples/contacts.csv";

/// What the Python generator writes: for webhooks, which a client does not call, it would write invalid code.
const PARTS: &str = "--global-property=apis,models,supportingFiles";

/// The name of the Python package.
const PACKAGE: &str = "recado_client";

struct Language {
    name: &'static str,
    /// The programs that must be installed.
    needs: &'static [&'static str],
    /// The files of `EXAMPLES` that it uses.
    files: &'static [&'static str],
    /// Generates and compiles the client in this directory, which has the document and the files.
    build: fn(&Path) -> Result<()>,
    /// The command of the main job, in this directory.
    main_job: fn(&Path) -> Command,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "typescript",
        needs: &["node", "npm"],
        files: &["package.json", "package-lock.json", "tsconfig.json", "main_job.ts"],
        build: build_typescript,
        main_job: |_| program("node", &["main_job.js"]),
    },
    Language {
        name: "python",
        needs: &["python3"],
        files: &["requirements.txt", "main_job.py"],
        build: build_python,
        main_job: |dir| program(python(dir, "python"), &["main_job.py"]),
    },
];

/// `cargo xtask clients`.
pub(crate) fn run() -> Result<()> {
    signals::install()?;
    outcome::finish(check())
}

/// Returns the languages that were skipped.
fn check() -> Result<Vec<Skipped>> {
    let scratch = Scratch::named("clients")?;
    let port = ReservedPort::new()?;
    let product = Product::start(&scratch.dir, Purpose::Tests, port.address())?;
    let variables = product.variables(&state::write_running(&scratch.dir, &product.env)?)?;
    let mut skipped = Vec::new();
    for language in &LANGUAGES {
        if let Some(missing) = language.needs.iter().find(|program| on_path(program).is_none()) {
            skipped.push(Skipped::new(language.name, format!("{missing} is not installed")));
            continue;
        }
        let dir = prepare(language)?;
        println!("{}: generating and compiling in {}", language.name, dir.display());
        (language.build)(&dir)?;
        let mut job = (language.main_job)(&dir);
        job.arg(paths::root().join(CONTACTS)).current_dir(&dir);
        job.envs(variables.iter().map(|(name, value)| (*name, value)));
        process::run(&mut job, &format!("the main job in {}", language.name))?;
    }
    Ok(skipped)
}

/// Makes the directory of a language anew, with the document of this version.
fn prepare(language: &Language) -> Result<PathBuf> {
    let dir = paths::target().join("clients").join(language.name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for file in language.files {
        let from = paths::root().join(EXAMPLES).join(file);
        fs::copy(&from, dir.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let mut recado = Command::new(paths::built("recado"));
    let document = process::quietly(recado.arg("openapi"), "recado openapi")?;
    fs::write(dir.join("openapi.json"), document).context("cannot write openapi.json")?;
    Ok(dir)
}

fn build_typescript(dir: &Path) -> Result<()> {
    for arguments in [
        &["ci", "--no-audit", "--no-fund"][..],
        &["run", "--silent", "generate"],
        &["run", "--silent", "build"],
    ] {
        let mut npm = program("npm", arguments);
        process::quietly(npm.current_dir(dir), &format!("npm {}", arguments.join(" ")))?;
    }
    Ok(())
}

fn build_python(dir: &Path) -> Result<()> {
    let pip = ["install", "--quiet", "--disable-pip-version-check", "-r"];
    let properties = format!("packageName={PACKAGE}");
    let steps: [(PathBuf, Vec<&str>); 5] = [
        ("python3".into(), vec!["-m", "venv", "environment"]),
        (python(dir, "pip"), [&pip[..], &["requirements.txt"]].concat()),
        (
            python(dir, "openapi-generator-cli"),
            vec![
                "generate",
                "-g",
                "python",
                "-i",
                "openapi.json",
                "-o",
                ".",
                PARTS,
                "--additional-properties",
                &properties,
            ],
        ),
        // The generator has replaced the file by the requirements of the client.
        (python(dir, "pip"), [&pip[..], &["requirements.txt"]].concat()),
        (python(dir, "python"), vec!["-m", "compileall", "-q", PACKAGE]),
    ];
    for (path, arguments) in steps {
        let name = format!("{} {}", path.display(), arguments.join(" "));
        process::quietly(program(path, &arguments).current_dir(dir), &name)?;
    }
    Ok(())
}

/// A program of the virtual environment.
fn python(dir: &Path, name: &str) -> PathBuf {
    dir.join("environment").join("bin").join(name)
}

fn program(path: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(path.as_ref());
    command.args(arguments);
    command
}
