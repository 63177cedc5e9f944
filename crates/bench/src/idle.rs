//! The idle server: startup time, memory, shutdown time.

use std::time::{Duration, Instant};

use anyhow::Result;
use recado_testkit::memory;

use super::Options;
use super::fixture::Fixture;
use super::results::BenchResult;

pub(super) const REQUESTS: usize = 100;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let server = fixture.serve()?;
    fixture.read(&server, REQUESTS)?;
    let memory = memory::of(server.process.id())?;
    let ready = server.took;
    let stopping = Instant::now();
    drop(server);
    let seconds = |name: &str, time: Duration| BenchResult::less(format!("idle: {name}"), time.as_secs_f64(), " s", 2);
    Ok(vec![
        BenchResult::less("idle: resident memory after 100 requests", memory.now, " MiB", 1)
            .count()
            .target(24.0),
        seconds("startup time", ready).target(0.2),
        seconds("shutdown time after SIGTERM", stopping.elapsed()).target(0.3),
    ])
}
