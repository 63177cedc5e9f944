//! The API reference page: its assets, security headers and caching. `cargo xtask browser` tests it in a browser.

use crate::harness::{Options, Server};

/// Every URL in the page's attributes.
fn asset_urls(page: &str) -> Vec<String> {
    let quoted = page.split(['"', '\'']).skip(1).step_by(2);
    let urls = quoted.filter(|text| text.starts_with("docs/") || text.contains("//"));
    urls.map(str::to_owned).collect()
}

#[test]
fn docs_page_loads_only_own_assets() {
    let server = Server::start(Options::default());
    let page = server.get("/docs").send();
    assert_eq!(page.status, 200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let urls = asset_urls(&page.text);
    assert_eq!(urls.len(), 6, "{urls:?}");
    for url in urls {
        let (status, head) = server.get(&format!("/{url}")).response_head();
        assert_eq!(status, 200, "{url}");
        assert!(head.contains("x-content-type-options: nosniff"), "{url}: {head}");
    }
}

#[test]
fn docs_assets_are_cacheable() {
    let server = Server::start(Options::default());
    let request = || server.get("/docs/swagger-ui.css");
    let plain = request().header("Accept-Encoding", "identity").send();
    assert!(plain.text.contains(".swagger-ui"), "{} bytes", plain.text.len());
    assert!(!plain.headers.contains_key("content-encoding"));
    assert_eq!(plain.headers["content-type"], "text/css; charset=utf-8");
    assert_eq!(plain.headers["vary"], "Accept-Encoding");
    assert_eq!(plain.headers["cache-control"], "public, max-age=86400");
    let (status, compressed) = request().response_head();
    assert_eq!(status, 200);
    assert!(compressed.contains("content-encoding: gzip"), "{compressed}");
    let tag = plain.headers["etag"].to_str().unwrap().to_owned();
    assert!(
        !compressed.contains(&tag),
        "each encoding has its own ETag: {compressed}"
    );
    let again = request()
        .header("Accept-Encoding", "identity")
        .header("If-None-Match", &tag)
        .send();
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}

#[test]
fn docs_serves_no_other_path() {
    let server = Server::start(Options::default());
    for path in [
        "/docs/",
        "/docs/index.html",
        "/docs/..%2f..%2fetc%2fpasswd",
        "/docs/start.js/x",
        "/docs/LICENSE.gz",
    ] {
        server.get(path).send().refused(404, "NOT_FOUND");
    }
    server
        .get("/docs")
        .method("POST")
        .send()
        .refused(405, "METHOD_NOT_ALLOWED");
}
