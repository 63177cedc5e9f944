//! Tests of the page fetcher against hostile websites.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use recado_domain::brand::{PageFetcher as _, PageRefusal};
use recado_domain::egress::TargetRefusal;
use recado_gateways::brand::PageClient;
use recado_simulators::raw::{RawServer, Reply};
use recado_testkit::DEADLINE;

use crate::egress::{Dns, OPEN, egress};

const SHORT: Duration = Duration::from_millis(700);
const MAX_PAGE_BYTES: usize = 1 << 20;

fn client() -> PageClient {
    PageClient::new(egress(&[OPEN], Dns::default()))
}

fn site(replies: Vec<Reply>) -> RawServer {
    RawServer::replying_at(&format!("{OPEN}:0"), replies).unwrap()
}

fn page(body: &str) -> Reply {
    Reply::http("200 OK\r\nContent-Type: text/html; charset=utf-8", body)
}

fn raw(headers: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\nContent-Length: {}\r\n\r\n", body.len());
    Reply::bytes([head.as_bytes(), body].concat())
}

fn redirect(location: &str) -> Reply {
    Reply::http(&format!("302 Found\r\nLocation: {location}"), "")
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

async fn refusal_of(reply: Reply) -> PageRefusal {
    let site = site(vec![reply]);
    let started = Instant::now();
    let refusal = client().timeout(SHORT * 3).fetch(site.origin()).await.unwrap_err();
    assert!(started.elapsed() < DEADLINE, "{refusal:?}: {:?}", started.elapsed());
    refusal
}

#[tokio::test]
async fn page_request_identifies_the_bot() {
    let site = site(vec![page("<title>Loja</title><p>P\u{e3}o de queijo.</p>")]);
    let url = format!("{}/sobre?a=b#c", site.origin());
    let fetched = client().fetch(&url).await.unwrap();
    assert_eq!(fetched.url, format!("{}/sobre?a=b", site.origin()));
    assert_eq!(fetched.title.as_deref(), Some("Loja"));
    assert_eq!(fetched.text, "title: Loja\nPão de queijo.");
    let head = site.heads().remove(0).to_lowercase();
    assert!(head.starts_with("get /sobre?a=b http/1.1"), "{head}");
    for line in ["recadobot/", "accept-encoding: identity", "accept: text/html"] {
        assert!(head.contains(line), "{line}: {head}");
    }
    for unwanted in ["cookie", "authorization", "referer", "content-length"] {
        assert!(!head.contains(unwanted), "{head}");
    }
}

#[tokio::test]
async fn page_fetches_share_no_connection() {
    let site = site(vec![redirect("/b"), page("b"), page("c")]);
    let client = client();
    for text in ["b", "c"] {
        assert_eq!(client.fetch(site.origin()).await.unwrap().text, text);
    }
    assert_eq!(site.connections(), 3);
}

/// Parsing must not block the thread that serves requests: without a free blocking thread it waits.
#[test]
fn page_is_parsed_outside_the_request_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let blocker = tokio::task::spawn_blocking(move || blocked.recv());
        let site = site(vec![page("<p>a")]);
        let client = client();
        let mut fetch = std::pin::pin!(client.fetch(site.origin()));
        let early = tokio::time::timeout(SHORT, &mut fetch).await;
        assert!(early.is_err(), "{early:?}");
        assert_eq!(site.heads().len(), 1, "the page was fetched");
        release.send(()).unwrap();
        assert_eq!(fetch.await.unwrap().text, "a");
        blocker.await.unwrap().unwrap();
    });
}

#[tokio::test]
async fn page_of_other_types_and_encodings_is_read() {
    let compressed = gzip("<p>Olá".as_bytes());
    for (reply, text) in [
        (raw("Content-Type: text/plain", b"um\ndois"), "um\ndois"),
        (raw("Content-Type: TEXT/HTML ;charset=iso-8859-1", b"<p>Ol\xe1"), "Olá"),
        (
            raw("Content-Type: text/html\r\nContent-Encoding: gzip", &compressed),
            "Olá",
        ),
        (
            Reply::bytes(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<p>\r\n2\r\nab\r\n0\r\n\r\n",
            ),
            "ab",
        ),
    ] {
        let site = site(vec![reply]);
        assert_eq!(client().fetch(site.origin()).await.unwrap().text, text);
    }
}

#[tokio::test]
async fn page_limit_is_exactly_1_mib() {
    let body = |length: usize| format!("<p>a{}", " ".repeat(length - 4));
    let site = site(vec![page(&body(MAX_PAGE_BYTES)), page(&body(MAX_PAGE_BYTES + 1))]);
    assert_eq!(client().fetch(site.origin()).await.unwrap().text, "a");
    assert_eq!(client().fetch(site.origin()).await, Err(PageRefusal::TooLarge));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n1\r\nb\r\n0\r\n\r\n",
        MAX_PAGE_BYTES,
        body(MAX_PAGE_BYTES)
    );
    assert_eq!(refusal_of(Reply::bytes(chunked)).await, PageRefusal::TooLarge);
}

#[tokio::test]
async fn flooding_page_and_decompression_bomb_are_refused() {
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
    let bomb = gzip(&vec![b' '; 256 << 20]);
    let twice = gzip(&bomb);
    for (reply, refusal) in [
        (
            Reply::bytes(format!("{html}Content-Length: 10737418240\r\n\r\n")),
            PageRefusal::TooLarge,
        ),
        (
            Reply::endless(format!("{html}\r\n"), "<p>page</p>".repeat(1000)),
            PageRefusal::TooLarge,
        ),
        (
            Reply::endless(
                format!("{html}Transfer-Encoding: chunked\r\n\r\n"),
                format!("2000\r\n{}\r\n", "a".repeat(0x2000)),
            ),
            PageRefusal::TooLarge,
        ),
        (
            raw("Content-Type: text/html\r\nContent-Encoding: gzip", &bomb),
            PageRefusal::TooLarge,
        ),
        (
            raw("Content-Type: text/html\r\nContent-Encoding: gzip, gzip", &twice),
            PageRefusal::Encoding,
        ),
        (
            raw("Content-Type: text/html\r\nContent-Encoding: br", b"\x0b\x02\x80a\x03"),
            PageRefusal::Encoding,
        ),
        (
            raw("Content-Type: text/html\r\nContent-Encoding: gzip", b"no gzip"),
            PageRefusal::Broken,
        ),
        (Reply::endless(html, "x-a: b\r\n"), PageRefusal::Broken),
        (
            Reply::endless("HTTP/1.1 200 OK\r\nx-a: ", "b".repeat(1000)),
            PageRefusal::Broken,
        ),
    ] {
        assert_eq!(refusal_of(reply).await, refusal);
    }
}

#[tokio::test]
async fn slow_or_malformed_page_is_refused_in_time() {
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
    for (reply, refusal) in [
        (Reply::NoResponse, PageRefusal::TimedOut),
        (
            Reply::bytes(format!("{html}Content-Length: 100\r\n\r\n<p>cut")),
            PageRefusal::TimedOut,
        ),
        (Reply::bytes("HTTP/1.1 200"), PageRefusal::TimedOut),
        (Reply::last(""), PageRefusal::Broken),
        (Reply::bytes("220 smtp ready\r\n"), PageRefusal::Broken),
        (
            Reply::bytes(format!("{html}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")),
            PageRefusal::Broken,
        ),
        (
            Reply::bytes(format!("{html}Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
            PageRefusal::Broken,
        ),
    ] {
        assert_eq!(refusal_of(reply).await, refusal);
    }
    // The body ends at the declared length.
    let short_length = site(vec![Reply::bytes(format!(
        "{html}Content-Length: 5\r\n\r\n<p>abHTTP/1.1 200 OK\r\n"
    ))]);
    assert_eq!(client().fetch(short_length.origin()).await.unwrap().text, "ab");
}

#[tokio::test]
async fn page_of_wrong_type_charset_or_status_is_refused() {
    let typed = |media_type: &str| raw(&format!("Content-Type: {media_type}"), b"<p>a");
    for media_type in [
        "image/png",
        "application/pdf",
        "application/json",
        "application/octet-stream",
        "text/htmlx",
        "text/xml",
    ] {
        assert_eq!(
            refusal_of(typed(media_type)).await,
            PageRefusal::MediaType,
            "{media_type}"
        );
    }
    assert_eq!(refusal_of(raw("x-a: b", b"<p>a")).await, PageRefusal::MediaType);
    assert_eq!(
        refusal_of(raw("Content-Type: text/html; charset=utf-8", b"<p>\xc3\x28 \xa0\xa1")).await,
        PageRefusal::Encoding
    );
    assert_eq!(
        refusal_of(raw("Content-Type: text/html", b"<p>Ol\xe1")).await,
        PageRefusal::Encoding
    );
    for empty in ["", "<script>x</script>", "<!-- a -->"] {
        assert_eq!(refusal_of(page(empty)).await, PageRefusal::Empty);
    }
    for status in [304, 400, 401, 403, 404, 429, 500, 503] {
        let reply = Reply::bytes(format!("HTTP/1.1 {status} X\r\nContent-Type: text/html\r\n\r\n<p>a"));
        assert_eq!(refusal_of(reply).await, PageRefusal::Status(status));
    }
}

#[tokio::test]
async fn page_follows_at_most_three_redirects() {
    let end = site(vec![page("<p>end")]);
    let hops = site(vec![
        redirect("/1"),
        redirect("../2?x"),
        redirect(&format!("{}/end", end.origin())),
    ]);
    let fetched = client().fetch(&format!("{}/a/b", hops.origin())).await.unwrap();
    assert_eq!(
        (fetched.text.as_str(), fetched.url),
        ("end", format!("{}/end", end.origin()))
    );
    let paths: Vec<_> = hops
        .heads()
        .iter()
        .map(|head| head.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/a/b", "/1", "/2?x"]);
    let circle = site(vec![redirect("/again")]);
    assert_eq!(
        client().fetch(circle.origin()).await,
        Err(PageRefusal::TooManyRedirects)
    );
    assert_eq!(circle.heads().len(), 4);
}

#[tokio::test]
async fn redirect_to_forbidden_url_is_refused() {
    let canary = RawServer::replying(vec![page("caught")]).unwrap();
    let port = canary.port();
    let dns = || {
        Dns::default()
            .with_answers("private.example", &[&["127.0.0.1"]])
            .with_answers("rebound.example", &[&[OPEN], &["127.0.0.1"]])
    };
    for (location, refusal) in [
        (canary.origin().to_owned(), TargetRefusal::Address),
        (format!("//127.1:{port}/"), TargetRefusal::Address),
        (format!("http://localhost:{port}/"), TargetRefusal::Address),
        (format!("http://private.example:{port}/"), TargetRefusal::Address),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), TargetRefusal::Address),
        (
            "http://169.254.169.254/latest/meta-data/".into(),
            TargetRefusal::Address,
        ),
        (format!("http://ana:senha@{OPEN}/"), TargetRefusal::UserInfo),
        ("file:///etc/passwd".into(), TargetRefusal::Scheme),
        ("gopher://127.0.0.1:6379/_x".into(), TargetRefusal::Scheme),
        ("javascript:alert(1)".into(), TargetRefusal::Scheme),
        ("http://8.8.8.8:22/".into(), TargetRefusal::Port),
        ("http://[".into(), TargetRefusal::Malformed),
    ] {
        let site = site(vec![redirect(&location)]);
        let client = PageClient::new(egress(&[OPEN], dns()));
        let refused = client.fetch(site.origin()).await;
        assert_eq!(refused, Err(PageRefusal::Redirect(refusal)), "{location}");
    }
    // DNS rebinding: the name resolves to the site first and then to this machine.
    let site = site(vec![Reply::http(
        "302 Found\r\nConnection: close\r\nLocation: /again",
        "",
    )]);
    let client = PageClient::new(egress(&[OPEN], dns()));
    let refused = client.fetch(&format!("http://rebound.example:{}/", site.port())).await;
    assert_eq!(refused, Err(PageRefusal::Redirect(TargetRefusal::Address)));
    assert_eq!((canary.connections(), site.connections()), (0, 1));
    let without_location = self::site(vec![Reply::http("302 Found", "")]);
    assert_eq!(
        self::client().fetch(without_location.origin()).await,
        Err(PageRefusal::Broken)
    );
}

#[tokio::test]
async fn unreachable_page_reports_its_refusal() {
    let dns = Dns::default().with_answers("private.example", &[&["10.0.0.1"]]);
    let client = PageClient::new(egress(&[], dns));
    for (url, refusal) in [
        ("http://127.0.0.1/", PageRefusal::Url(TargetRefusal::Address)),
        ("http://private.example/", PageRefusal::Url(TargetRefusal::Address)),
        ("ftp://loja.example/", PageRefusal::Url(TargetRefusal::Scheme)),
        ("loja.example", PageRefusal::Url(TargetRefusal::Malformed)),
        ("http://unknown.example/", PageRefusal::Resolution),
    ] {
        assert_eq!(client.fetch(url).await, Err(refusal), "{url}");
    }
}
