//! Upload of a file of 100 MB: memory, and throughput compared with `dd` to the same directory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::memory;
use recado_testkit::process;

use super::Options;
use super::data;
use super::fixture::{Fixture, Launch, Server, port};
use super::results::{BenchResult, median_and_spread};

/// The largest document, in chunks of 1 MB.
const MEGABYTES: usize = 100;
const CHUNK: usize = 1_000_000;
const BOUNDARY: &str = "----bench";
const PATH: &str = "/api/templates/media/upload";

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let store = fixture.dir().join("media");
    let server = fixture.launch(&Launch {
        more: vec![("MEDIA_STORE_URL", format!("file://{}", store.display()))],
        ..fixture.uncounted()?
    })?;
    let Some(account) = data::accounts().into_iter().nth(12) else {
        bail!("there are no accounts");
    };
    // Warm-up: opens connections and lets the kernel allocate its pages.
    upload(fixture, &server, &account)?;
    empty(&store)?;
    let before = memory::of(server.process.id())?.now;
    let (mut shares, mut peak_increase) = (Vec::new(), 0.0_f64);
    for number in 1..=options.pairs {
        let (took, peak) = memory::peak_during(server.process.id(), || upload(fixture, &server, &account))?;
        // Empty the store between the two, so that neither competes with the other's writes to the disk.
        empty(&store)?;
        let alone = run_dd(&store)?;
        empty(&store)?;
        println!(
            "{number}/{}: {took:.3} s, dd {alone:.3} s, {:.1} MiB more",
            options.pairs,
            peak - before
        );
        shares.push(alone / took);
        peak_increase = peak_increase.max(peak - before);
    }
    let (share, spread) = median_and_spread(&shares);
    Ok(vec![
        BenchResult::less("upload: peak memory increase", peak_increase, " MiB", 1)
            .count()
            .target(4.0),
        BenchResult::more("upload: throughput / dd to the same directory", share, "", 2)
            .spread(spread)
            .target(0.8),
    ])
}

/// Uploads a document and returns the seconds that it took.
fn upload(fixture: &Fixture, server: &Server, account: &str) -> Result<f64> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n\
         Content-Type: application/pdf\r\n\r\n"
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let length = head.len() + MEGABYTES * CHUNK + tail.len();
    let mut request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
    );
    for (name, value) in fixture.headers(account)? {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(&head);
    let mut first = b"%PDF-1.7\n".to_vec();
    first.resize(CHUNK, b'x');
    let rest = vec![b'x'; CHUNK];
    let port = port(&server.base)?;
    let began = Instant::now();
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(request.as_bytes())?;
        for number in 0..MEGABYTES {
            stream.write_all(if number == 0 { &first } else { &rest })?;
        }
        stream.write_all(tail.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = exchange().context("the upload failed")?;
    let took = began.elapsed().as_secs_f64();
    match response.split(' ').nth(1) {
        Some("200" | "201") => Ok(took),
        _ => bail!("an upload got the response {response}"),
    }
}

/// Seconds that `dd` takes to write as many bytes and sync them, as the store does before it responds.
fn run_dd(store: &Path) -> Result<f64> {
    let file = store.join("dd");
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=64K", "count=1526", "conv=fsync"])
        .arg(format!("of={}", file.display()));
    let began = Instant::now();
    process::quietly(&mut dd, "dd")?;
    Ok(began.elapsed().as_secs_f64())
}

fn empty(store: &Path) -> Result<()> {
    let doing = || format!("cannot empty {}", store.display());
    fs::remove_dir_all(store).with_context(doing)?;
    fs::create_dir(store).with_context(doing)
}
