//! What hostile websites cost the server in memory: next to nothing, however large they say that they are.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::brand::{SCRAPE, server};

/// How much more memory the server may ever use while it reads such a site, in bytes: eight megabytes, which is also what
/// its allocator takes from the system at once, and a little for what goes on beside.
const MORE: u64 = 10 << 20;

/// The longest that a refusal may take: the ten seconds that a site has, and what a machine with other work needs.
const LONGEST: Duration = Duration::from_secs(15);

/// A website that is there to do harm.
type Site = fn(&mut TcpStream) -> std::io::Result<()>;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";

fn answer_packed(stream: &mut TcpStream, packed: GzEncoder<Vec<u8>>) -> std::io::Result<()> {
    let packed = packed.finish()?;
    stream.write_all(HEAD)?;
    write!(
        stream,
        "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    )?;
    stream.write_all(&packed)
}

/// A megabyte on the wire that unpacks to a gigabyte.
fn bomb(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![b' '; 1 << 20];
    while packed.get_ref().len() < 1_000_000 {
        packed.write_all(&piece)?;
    }
    answer_packed(stream, packed)
}

/// A body without an end, in chunks.
fn endless(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    stream.write_all(b"Transfer-Encoding: chunked\r\n\r\n")?;
    let piece = vec![b'a'; 1 << 16];
    loop {
        write!(stream, "{:x}\r\n", piece.len())?;
        stream.write_all(&piece)?;
        stream.write_all(b"\r\n")?;
    }
}

/// A body that is larger than it says.
fn lying(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    stream.write_all(b"Content-Length: 100\r\n\r\n")?;
    let piece = vec![0xff; 1 << 16];
    loop {
        stream.write_all(&piece)?;
    }
}

/// One header without an end.
fn long_header(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    stream.write_all(b"X-Long: ")?;
    let piece = vec![b'h'; 1 << 16];
    loop {
        stream.write_all(&piece)?;
    }
}

/// Headers without an end.
fn headers(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    let lines = "X-More: 0123456789\r\n".repeat(1000);
    loop {
        stream.write_all(lines.as_bytes())?;
    }
}

/// Most of a page at once, then a byte now and then.
fn drip(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    stream.write_all(b"\r\n")?;
    stream.write_all(&vec![b'a'; 1_000_000])?;
    loop {
        stream.write_all(b"a")?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A page of a megabyte that opens a tag with every character.
fn tags(stream: &mut TcpStream) -> std::io::Result<()> {
    let page = "<a><b>".repeat(170_000);
    stream.write_all(HEAD)?;
    write!(stream, "Content-Length: {}\r\n\r\n{page}", page.len())
}

const SITES: [(&str, Site); 7] = [
    ("a packed bomb", bomb),
    ("an endless body", endless),
    ("a lying length", lying),
    ("an endless header", long_header),
    ("endless headers", headers),
    ("a drip", drip),
    ("nothing but tags", tags),
];

fn serve(site: Site) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 8192]);
                // Whoever has had enough hangs up, which is an error here.
                let _ = site(&mut stream);
            });
        }
    });
    url
}

/// A good page, for what is only ever loaded once.
fn page(stream: &mut TcpStream) -> std::io::Result<()> {
    let text = "Oferecemos produtos de qualidade. ".repeat(20_000);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes())?;
    answer_packed(stream, packed)
}

#[test]
fn a_hostile_site_costs_next_to_nothing() {
    let (server, _service) = server();
    let ana = server.owner();
    let good = serve(page);
    // Each of the server's threads has a client of its own, which its first page makes; new connections take turns.
    for _ in 0..6 {
        server.owner().post(SCRAPE, json!({ "url": good })).ok();
    }
    for (name, site) in SITES {
        let url = serve(site);
        let before = server.forget_peak_memory();
        let begun = Instant::now();
        let reply = ana.post(SCRAPE, json!({ "url": url }));
        let (took, more) = (begun.elapsed(), server.peak_memory().saturating_sub(before));
        assert_eq!(reply.invalid(), ["url"], "{name}");
        assert!(took < LONGEST, "{name}: {took:?}");
        assert!(more <= MORE, "{name}: {more} bytes");
        println!("{name}: {took:?}, {} KiB more", more >> 10);
    }
}
