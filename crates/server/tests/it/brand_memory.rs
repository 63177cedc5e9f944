//! Memory use while scraping hostile websites: bounded, whatever size they declare or send.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use recado_simulators::raw::{self, RawServer};
use serde_json::json;

use crate::brand::{SCRAPE, start_with_ai_service};
use crate::harness::client::Reply;

/// Concurrent scrapes of a site. The allocator takes megabytes from the system at a time: spread over eight readers,
/// they do not distort the memory per reader.
const READERS: usize = 8;

/// The most additional peak memory per reader, in bytes.
const MAX_BYTES_PER_READER: u64 = 8 << 20;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";

fn gzip_response(encoder: GzEncoder<Vec<u8>>) -> raw::Reply {
    let status = "200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip";
    raw::Reply::http_last(status, encoder.finish().unwrap())
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// A gzip bomb: one megabyte that decompresses to a gigabyte.
fn bomb() -> raw::Reply {
    let mut bomb = encoder();
    let block = vec![b' '; 1 << 20];
    while bomb.get_ref().len() < 1_000_000 {
        bomb.write_all(&block).unwrap();
    }
    gzip_response(bomb)
}

/// A response that starts with `head` and repeats `block` without end.
fn endless(head: &str, block: impl Into<Vec<u8>>) -> raw::Reply {
    raw::Reply::endless(format!("{HEAD}{head}"), block)
}

fn hostile_sites() -> [(&'static str, raw::Reply); 7] {
    let block = "a".repeat(1 << 16);
    let chunk = format!("{:x}\r\n{block}\r\n", block.len());
    let page = format!("{HEAD}\r\n{}", "a".repeat(1_000_000));
    let tags = "<a><b>".repeat(170_000);
    [
        ("a gzip bomb", bomb()),
        ("an endless body", endless("Transfer-Encoding: chunked\r\n\r\n", chunk)),
        (
            "a wrong Content-Length",
            endless("Content-Length: 100\r\n\r\n", vec![0xff; 1 << 16]),
        ),
        ("an endless header", endless("X-Long: ", block)),
        ("endless headers", endless("", "X-More: 0123456789\r\n".repeat(1000))),
        // Most of a page at once, then one byte every 100 ms.
        ("a slow body", raw::Reply::drip(page, "a", Duration::from_millis(100))),
        // A page of a megabyte that consists of opening tags.
        (
            "nothing but tags",
            raw::Reply::http_last("200 OK\r\nContent-Type: text/html", tags),
        ),
    ]
}

/// An ordinary page, which makes the server allocate what it allocates only once.
fn ordinary_page() -> raw::Reply {
    let mut page = encoder();
    let text = "Oferecemos produtos de qualidade. ".repeat(20_000);
    page.write_all(text.as_bytes()).unwrap();
    gzip_response(page)
}

#[test]
fn hostile_website_uses_bounded_memory_and_time() {
    let (server, _service) = start_with_ai_service();
    let readers: Vec<_> = (0..READERS).map(|_| server.owner()).collect();
    let scrape = |site: &RawServer| -> Vec<Reply> {
        let requests = readers.iter().map(|reader| reader.request("POST", SCRAPE));
        let requests = requests.map(|request| request.json(&json!({ "url": site.origin() })));
        std::thread::scope(|scope| {
            let threads: Vec<_> = requests.map(|request| scope.spawn(|| request.send())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    // Warm-up: one-time allocations must not count.
    let serve = |reply| RawServer::replying(vec![reply]).unwrap();
    scrape(&serve(ordinary_page()))
        .into_iter()
        .for_each(|reply| drop(reply.ok()));
    for (name, reply) in hostile_sites() {
        let site = serve(reply);
        let before = server.reset_peak_memory();
        let begun = Instant::now();
        // Some sites never end: a reply before the deadline of the client shows that the server ends them.
        let replies = scrape(&site);
        let (took, extra) = (begun.elapsed(), server.peak_memory().saturating_sub(before));
        for reply in replies {
            assert_eq!(reply.invalid(), ["url"], "{name}");
        }
        let each = extra / u64::try_from(READERS).unwrap();
        assert!(each <= MAX_BYTES_PER_READER, "{name}: {each} bytes for each reader");
        println!("{name}: {took:?}, {} KiB more for each reader", each >> 10);
    }
}
