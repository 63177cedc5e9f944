//! `cargo xtask schemathesis`: checks the API against its OpenAPI document with generated requests.
//!
//! schemathesis is installed from PyPI into a virtual environment below `target`. It reads `/api/openapi.json` of a
//! server with demo data and calls every operation as the owner of the demo account. It calls the administration's
//! operations as an administrator without an account, so that they cannot delete that account. An undocumented status,
//! type or body is a failure, and so is every 5xx except 502. The same seed generates the same requests.

mod options;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use recado_testkit::demo_account;
use recado_testkit::http::Client;
use recado_testkit::memory;
use recado_testkit::product::Product;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::ReservedPort;
use recado_testkit::services::postgres::Purpose;
use recado_testkit::services::redis::Redis;
use recado_testkit::state::{Env, value};
use recado_testkit::token;
use recado_testkit::{paths, process, signals};
use serde_json::Value;

pub(crate) use options::Options;

/// The pinned version: other versions generate other requests.
const PACKAGE: &str = "schemathesis==4.32.5";

/// The checks. Those that expect every valid body to be accepted are left out: that depends on the account's data.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method,\
                      allow_header_conformance,ignored_auth,use_after_free";

/// A 502 reports an external system, and the document says whether an operation may return it. Leaving support mode
/// without being in it is documented as a 500.
const CONFIG: &str = include_str!("schemathesis.toml");

/// Hooks for what schemathesis cannot derive from the document.
const HOOKS: &str = include_str!("hooks.py");

const ADMIN_PATHS: &str = "^/api/admin/";

/// Maximum peak memory of the server in MiB (debug build).
const MAX_MEMORY: f64 = 400.0;

/// Interval at which Redis is cleared. Otherwise the rate limits would refuse nearly all requests.
const RESET_INTERVAL: Duration = Duration::from_millis(250);

/// `cargo xtask schemathesis`.
pub(crate) fn run(options: Options) -> Result<()> {
    let seed = options.seed()?;
    signals::install()?;
    let program = install()?;
    let scratch = Scratch::new()?;
    let config = scratch.dir.join("schemathesis.toml");
    std::fs::write(&config, CONFIG).with_context(|| format!("cannot write {}", config.display()))?;
    std::fs::write(scratch.dir.join("hooks.py"), HOOKS).context("cannot write hooks.py")?;
    let port = ReservedPort::new()?;
    let mut product = Product::start(&scratch.dir, Purpose::Tests, port.address())?;
    let job = Job {
        program,
        config,
        hooks: scratch.dir.clone(),
        base: product.addresses.base_url(),
        options,
        seed,
    };
    println!("seed    {seed} (--seed repeats it)");
    let outcome = with_reset_limits(product.redis(), || job.run(&product.env));
    product.alive()?;
    let memory = memory::of(product.server.id())?;
    println!("memory  {:.0} MiB now, {:.0} MiB at most", memory.now, memory.peak);
    check_log(&product)?;
    outcome?;
    if memory.peak > MAX_MEMORY {
        bail!("the server used {:.0} MiB, more than {MAX_MEMORY:.0} MiB", memory.peak);
    }
    Ok(())
}

/// A selection of operations, the caller's headers, and the share of the time in tenths.
struct Part<'p> {
    filter: [&'p str; 2],
    headers: &'p [String],
    tenths: u64,
}

impl<'p> Part<'p> {
    fn new(filter: [&'p str; 2], headers: &'p [String], tenths: u64) -> Self {
        Self {
            filter,
            headers,
            tenths,
        }
    }
}

/// The settings of every call of schemathesis.
struct Job {
    program: PathBuf,
    config: PathBuf,
    /// Directory of the hooks.
    hooks: PathBuf,
    base: String,
    options: Options,
    seed: u64,
}

impl Job {
    /// Runs the account's operations and the administration's, even if the first fail.
    fn run(&self, env: &Env) -> Result<()> {
        let document = Client::new(&self.base, Vec::new()).get("/api/openapi.json")?.body;
        let operations = operations(&document);
        if operations.is_empty() {
            bail!("the server has no document");
        }
        let examples = self.options.examples(operations.len());
        println!("        {} operations, {examples} examples of each", operations.len());
        let endless: Vec<&str> = operations
            .iter()
            .filter(|operation| operation.endless)
            .map(|operation| operation.path)
            .collect();
        let owner = [
            session(env, &demo_account::user(), demo_account::EMAIL)?,
            format!("X-Account-Id: {}", demo_account::ACCOUNT),
        ];
        let admin = [session(env, &token::user_id(demo_account::ADMIN), demo_account::ADMIN)?];
        let part = Part::new;
        let run = |part: &Part<'_>| self.schemathesis(examples, &endless, part);
        match self.options.only.as_deref() {
            Some(path) if path.starts_with("/api/admin/") => return run(&part(["--include-path", path], &admin, 10)),
            Some(path) => return run(&part(["--include-path", path], &owner, 10)),
            None => {}
        }
        let account = run(&part(["--exclude-path-regex", ADMIN_PATHS], &owner, 9));
        if signals::received() {
            return account;
        }
        let administration = run(&part(["--include-path-regex", ADMIN_PATHS], &admin, 1));
        account.and(administration)
    }

    fn schemathesis(&self, examples: u64, endless: &[&str], part: &Part<'_>) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("--config-file").arg(&self.config).arg("run");
        command.arg(format!("{}/api/openapi.json", self.base));
        command.args(["--checks", CHECKS, "--continue-on-failure", "--no-color"]);
        command.args(["--request-timeout", "60", "--generation-database", "none"]);
        command.args(["--suppress-health-check", "all", "--warnings", "off"]);
        command.args([
            "--max-examples",
            &examples.to_string(),
            "--seed",
            &self.seed.to_string(),
        ]);
        command.args(["--workers", &self.options.workers.to_string()]);
        if let Some(seconds) = self.options.seconds {
            let seconds = (seconds * part.tenths / 10).max(1);
            command.args(["--max-time", &seconds.to_string()]);
        }
        command.args(part.filter);
        for path in endless {
            command.args(["--exclude-path", path]);
        }
        for header in part.headers {
            command.args(["--header", header]);
        }
        command
            .env("SCHEMATHESIS_HOOKS", "hooks")
            .env("PYTHONPATH", &self.hooks);
        command.current_dir(paths::target());
        process::run(&mut command, "schemathesis")
    }
}

/// An operation of the document.
struct Operation<'d> {
    path: &'d str,
    /// The response is an endless stream.
    endless: bool,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let methods = ["get", "put", "post", "delete", "patch"];
    let paths = document.get("paths").and_then(Value::as_object);
    let mut operations = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        for (_, operation) in item
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| methods.contains(&key.as_str()))
        {
            let stream = "/responses/200/content/text~1event-stream";
            operations.push(Operation {
                path,
                endless: operation.pointer(stream).is_some(),
            });
        }
    }
    operations
}

fn session(env: &Env, user: &str, email: &str) -> Result<String> {
    let token = token::sign(value(env, "SESSION_JWT_SECRET")?, user, email, None, 240)?;
    Ok(format!("Authorization: Bearer {token}"))
}

/// Runs `work` and clears the rate limits in Redis at an interval meanwhile.
fn with_reset_limits<T>(redis: Option<&Redis>, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(redis) = redis {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    redis.clear();
                    thread::sleep(RESET_INTERVAL);
                }
            });
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Copies the server's log to `target` and fails if the server panicked.
fn check_log(product: &Product) -> Result<()> {
    let log = std::fs::read_to_string(&product.server.log).unwrap_or_default();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let copy = paths::target().join("schemathesis.log");
    std::fs::write(&copy, &log).with_context(|| format!("cannot write {}", copy.display()))?;
    println!("log     {}: {} errors", copy.display(), errors.len());
    match log.lines().find(|line| line.contains("panicked at")) {
        Some(line) => bail!("the server panicked: {line}"),
        None => Ok(()),
    }
}

/// Returns the program in a virtual environment for this version, and installs it if it is missing.
fn install() -> Result<PathBuf> {
    let home = paths::target().join(PACKAGE.replace("==", "-"));
    let program = home.join("bin").join("schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    println!("installing {PACKAGE} (pip)");
    let _ = std::fs::remove_dir_all(&home);
    let mut make = Command::new("python3");
    process::quietly(make.args(["-m", "venv"]).arg(&home), "python3 -m venv")?;
    let mut pip = Command::new(home.join("bin").join("pip"));
    let installed = process::quietly(
        pip.args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]),
        "pip install",
    );
    match installed {
        Ok(_) => Ok(Path::new(&program).to_path_buf()),
        Err(failure) => {
            // Remove an incomplete environment, so that later runs do not use it.
            let _ = std::fs::remove_dir_all(&home);
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn event_streams_are_marked_as_endless() {
        let stream = json!({ "responses": { "200": { "content": { "text/event-stream": {} } } } });
        let document = json!({ "paths": {
            "/a": { "get": { "responses": { "200": { "content": { "application/json": {} } } } }, "summary": "x" },
            "/b": { "get": stream },
        } });
        let found: Vec<_> = operations(&document)
            .iter()
            .map(|operation| (operation.path, operation.endless))
            .collect();
        assert_eq!(found, [("/a", false), ("/b", true)]);
    }
}
