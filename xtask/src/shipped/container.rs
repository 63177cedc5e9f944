//! Runs the server from the built image, with the services and simulators of a running product.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::http::Client;
use recado_testkit::process::{self, ChildProcess};
use recado_testkit::product::Product;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::ReservedPort;
use recado_testkit::services::postgres::Purpose;
use recado_testkit::state::Env;
use serde_json::Value;

use super::buildah::Buildah;

const READY: Duration = Duration::from_secs(30);

/// Variables that the image sets itself.
const OWN: [&str; 2] = ["LOG_FORMAT", "MEDIA_STORE_URL"];

/// A container of an image and its environment.
struct Container<'a> {
    buildah: &'a Buildah,
    name: String,
    env: Env,
}

impl Container<'_> {
    /// A command in the container, as the user and in the directory of the image.
    fn command(&self, arguments: &[String]) -> Command {
        let mut run = self.buildah.command("run");
        for (name, value) in &self.env {
            run.arg("--env").arg(format!("{name}={value}"));
        }
        run.arg(&self.name).arg("--").args(arguments);
        run
    }

    fn run(&self, arguments: &[String]) -> Result<String> {
        process::quietly(&mut self.command(arguments), &arguments.join(" "))
    }
}

/// Migrates with the image, serves with it, and runs its health check, as an orchestrator does.
pub(super) fn check(buildah: &Buildah, image: &str) -> Result<()> {
    let scratch = Scratch::named("container")?;
    let port = ReservedPort::new()?;
    let product = Product::start(&scratch.dir, Purpose::Tests, port.address())?;
    let config = process::quietly(
        buildah.command("inspect").args(["--type", "image", image]),
        "buildah inspect",
    )?;
    let config: Value = serde_json::from_str(&config).context("buildah inspect did not print JSON")?;
    let words = |pointer: &str| words(&config, pointer);
    let (entrypoint, serve, health) = (
        words("/Docker/config/Entrypoint")?,
        words("/Docker/config/Cmd")?,
        words("/Docker/config/Healthcheck/Test")?,
    );
    let reserved = ReservedPort::new()?;
    let address = reserved.address();
    let mut env = product.env.clone();
    env.retain(|name, _| !OWN.contains(&name.as_str()));
    env.insert("BIND".to_owned(), address.clone());
    env.insert("METRICS_BIND".to_owned(), "127.0.0.1:0".to_owned());
    let mut from = buildah.command("from");
    let name = process::quietly(from.args(["--pull-never", image]), "buildah from")?;
    let name = name.trim().to_owned();
    let container = Container { buildah, name, env };

    let permissions =
        "test \"$(id -u)\" -ne 0 && test -w /var/lib/recado && test ! -w . && test ! -w /usr/local/bin/recado";
    container.run(&["sh", "-c", permissions].map(str::to_owned))?;
    let with_entrypoint = |arguments: &[String]| [&entrypoint, arguments].concat();
    container.run(&with_entrypoint(&["migrate".to_owned()]))?;
    let began = Instant::now();
    let mut run = container.command(&with_entrypoint(&serve));
    let mut server = ChildProcess::spawn("the image", &mut run, scratch.dir.join("image.log"))?;
    let client = Client::new(&format!("http://{address}"), Vec::new());
    server.wait_until(READY, || client.get("/readyz").is_ok_and(|reply| reply.status == 200))?;
    println!("the image serves /readyz after {:.1} s", began.elapsed().as_secs_f64());
    // The first word is `CMD`.
    container.run(health.get(1..).unwrap_or_default())?;
    if !server.tail().lines().any(|line| line.starts_with('{')) {
        bail!("the log of the image is not JSON:\n{}", server.tail());
    }
    drop(server);
    match client.get("/healthz") {
        Ok(_) => bail!("the server still responds after SIGTERM"),
        Err(_) => Ok(()),
    }
}

/// A list of words in the configuration of the image.
fn words(config: &Value, pointer: &str) -> Result<Vec<String>> {
    let words = config.pointer(pointer).and_then(Value::as_array);
    let words = words.with_context(|| format!("the image has no {pointer}"))?;
    Ok(words.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
