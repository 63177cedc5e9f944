//! What hostile websites cost the server in memory: next to nothing, however large they say that they are.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use recado_simulators::raw::{self, RawServer};
use serde_json::json;

use crate::brand::{SCRAPE, server};
use crate::harness::client::Reply;

/// How many read such a site at once: its allocator takes megabytes from the system at a time, which one reader alone
/// would seem to cost, and which are nothing among eight.
const READERS: usize = 8;

/// How much more memory the server may ever use for each who reads such a site, in bytes.
const MORE: u64 = 8 << 20;

/// The longest that a refusal may take: the ten seconds that a site has, and what a machine with other work needs.
const LONGEST: Duration = Duration::from_secs(15);

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";

fn packed(encoder: GzEncoder<Vec<u8>>) -> raw::Reply {
    let status = "200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip";
    raw::Reply::http_last(status, encoder.finish().unwrap())
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// A megabyte on the wire that unpacks to a gigabyte.
fn bomb() -> raw::Reply {
    let mut bomb = encoder();
    let piece = vec![b' '; 1 << 20];
    while bomb.get_ref().len() < 1_000_000 {
        bomb.write_all(&piece).unwrap();
    }
    packed(bomb)
}

/// A head, and a body that never ends.
fn endless(head: &str, again: impl Into<Vec<u8>>) -> raw::Reply {
    raw::Reply::endless(format!("{HEAD}{head}"), again)
}

/// Websites that are there to do harm.
fn sites() -> [(&'static str, raw::Reply); 7] {
    let piece = "a".repeat(1 << 16);
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    let page = format!("{HEAD}\r\n{}", "a".repeat(1_000_000));
    let tags = "<a><b>".repeat(170_000);
    [
        ("a packed bomb", bomb()),
        ("an endless body", endless("Transfer-Encoding: chunked\r\n\r\n", chunk)),
        (
            "a lying length",
            endless("Content-Length: 100\r\n\r\n", vec![0xff; 1 << 16]),
        ),
        ("an endless header", endless("X-Long: ", piece)),
        ("endless headers", endless("", "X-More: 0123456789\r\n".repeat(1000))),
        // Most of a page at once, then a byte now and then.
        ("a drip", raw::Reply::drip(page, "a", Duration::from_millis(100))),
        // A page of a megabyte that opens a tag with every character.
        (
            "nothing but tags",
            raw::Reply::http_last("200 OK\r\nContent-Type: text/html", tags),
        ),
    ]
}

/// A good page, for what is only ever loaded once.
fn page() -> raw::Reply {
    let mut page = encoder();
    let text = "Oferecemos produtos de qualidade. ".repeat(20_000);
    page.write_all(text.as_bytes()).unwrap();
    packed(page)
}

#[test]
fn a_hostile_site_costs_next_to_nothing() {
    let (server, _service) = server();
    let readers: Vec<_> = (0..READERS).map(|_| server.owner()).collect();
    let read = |site: &RawServer| -> Vec<Reply> {
        let requests = readers.iter().map(|reader| reader.request("POST", SCRAPE));
        let requests = requests.map(|request| request.json(&json!({ "url": site.origin() })));
        std::thread::scope(|scope| {
            let threads: Vec<_> = requests.map(|request| scope.spawn(|| request.send())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    // What is only ever made once is made by a good page.
    let serve = |reply| RawServer::replying(vec![reply]).unwrap();
    read(&serve(page())).into_iter().for_each(|reply| drop(reply.ok()));
    for (name, reply) in sites() {
        let site = serve(reply);
        let before = server.forget_peak_memory();
        let begun = Instant::now();
        let replies = read(&site);
        let (took, more) = (begun.elapsed(), server.peak_memory().saturating_sub(before));
        for reply in replies {
            assert_eq!(reply.invalid(), ["url"], "{name}");
        }
        let each = more / u64::try_from(READERS).unwrap();
        assert!(took < LONGEST, "{name}: {took:?}");
        assert!(each <= MORE, "{name}: {each} bytes for each reader");
        println!("{name}: {took:?}, {} KiB more for each reader", each >> 10);
    }
}
