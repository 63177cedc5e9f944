//! Import of a million contacts, generated while it is sent: peak memory and throughput.

use std::io::Read;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use recado_testkit::memory;
use serde_json::Value;
use ureq::{Agent, SendBody};

use super::data::targets;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::{Options, idle};

const ROWS: u32 = 1_000_000;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    let Some(target) = targets().into_iter().next() else {
        bail!("there is no account to import into");
    };
    let server = fixture.serve()?;
    fixture.read(&server, idle::REQUESTS)?;
    let process = server.process.id();
    let idle = memory::of(process)?.now;
    let start = Instant::now();
    let headers = fixture.headers(&target.account)?;
    let (report, peak) = memory::peak_during(process, || send(&server.base, &headers))?;
    let seconds = start.elapsed().as_secs_f64();
    if report.pointer("/data/imported").and_then(Value::as_u64) != Some(ROWS.into()) {
        bail!("the import did not import every row: {report}");
    }
    println!("{ROWS} rows in {seconds:.1} s; {idle:.1} MiB before, {peak:.1} MiB at most");
    Ok(vec![
        BenchResult::less("import: peak memory increase", peak - idle, " MiB", 1)
            .count()
            .target(16.0),
        BenchResult::more("import: row throughput", f64::from(ROWS) / seconds, "/s", 0).target(15_000.0),
    ])
}

fn send(base: &str, headers: &[(&'static str, String)]) -> Result<Value> {
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut request = agent
        .post(format!("{base}/api/contacts/import"))
        .header("content-type", "text/csv");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let mut lines = Lines::new(ROWS);
    let response = request
        .send(SendBody::from_reader(&mut lines))
        .and_then(|mut response| response.body_mut().read_to_string())
        .context("the import")?;
    serde_json::from_str(&response).with_context(|| response)
}

/// The file, generated while it is read: like docs/examples/contacts.csv, with a tag and two attributes per row.
struct Lines {
    rows: u32,
    generated: u32,
    buffer: Vec<u8>,
    position: usize,
}

impl Lines {
    const ROWS_PER_FILL: u32 = 500;

    fn new(rows: u32) -> Self {
        Self {
            rows,
            generated: 0,
            buffer: Vec::new(),
            position: 0,
        }
    }

    fn refill(&mut self) {
        const TAGS: [&str; 4] = ["clientes", "vip", "inativos", "aniversariantes"];
        self.buffer.clear();
        self.position = 0;
        if self.generated == 0 {
            self.buffer.extend_from_slice(b"name,phone,email,tags,cidade,cupom\n");
        }
        let end = self.rows.min(self.generated + Self::ROWS_PER_FILL);
        for (number, tag) in (self.generated..end).zip(TAGS.iter().cycle()) {
            let line = format!(
                "Irapuã da Silva {number},011 9{:04}-{:04},irapua.{number}@padaria.example,{tag},Osasco,VOLTA20\n",
                number / 10_000,
                number % 10_000
            );
            self.buffer.extend_from_slice(line.as_bytes());
        }
        self.generated = end;
    }
}

impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.position == self.buffer.len() {
            self.refill();
        }
        let mut rest = self.buffer.get(self.position..).unwrap_or_default();
        let read = rest.read(out)?;
        self.position += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_file_has_a_distinct_phone_per_row() {
        let mut text = String::new();
        Lines::new(12_001).read_to_string(&mut text).unwrap();
        let mut phones: Vec<&str> = text.lines().filter_map(|line| line.split(',').nth(1)).collect();
        assert_eq!(phones.len(), 12_002);
        phones.sort_unstable();
        phones.dedup();
        assert_eq!(phones.len(), 12_002);
        let last = "Irapuã da Silva 12000,011 90001-2000,irapua.12000@padaria.example,clientes,Osasco,VOLTA20";
        assert_eq!(text.lines().last(), Some(last));
    }
}
