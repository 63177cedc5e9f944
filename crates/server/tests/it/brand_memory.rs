//! What hostile websites cost the server in memory: next to nothing, however large they say that they are.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
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

/// A website that is there to do harm.
type Site = fn(&mut TcpStream) -> std::io::Result<()>;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";

fn answer_packed(stream: &mut TcpStream, packed: &[u8]) -> std::io::Result<()> {
    stream.write_all(HEAD)?;
    write!(
        stream,
        "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    )?;
    stream.write_all(packed)
}

/// A megabyte on the wire that unpacks to a gigabyte.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![b' '; 1 << 20];
    while packed.get_ref().len() < 1_000_000 {
        packed.write_all(&piece).unwrap();
    }
    packed.finish().unwrap()
});

fn bomb(stream: &mut TcpStream) -> std::io::Result<()> {
    answer_packed(stream, &BOMB)
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
    answer_packed(stream, &packed.finish()?)
}

#[test]
fn a_hostile_site_costs_next_to_nothing() {
    let (server, _service) = server();
    let readers: Vec<_> = (0..READERS).map(|_| server.owner()).collect();
    let read = |url: &str| -> Vec<Reply> {
        let requests = readers.iter().map(|reader| reader.request("POST", SCRAPE));
        let requests = requests.map(|request| request.json(&json!({ "url": url })));
        std::thread::scope(|scope| {
            let threads: Vec<_> = requests.map(|request| scope.spawn(|| request.send())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    // What is only ever made once is made by a good page.
    read(&serve(page)).into_iter().for_each(|reply| drop(reply.ok()));
    LazyLock::force(&BOMB);
    for (name, site) in SITES {
        let url = serve(site);
        let before = server.forget_peak_memory();
        let begun = Instant::now();
        let replies = read(&url);
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
