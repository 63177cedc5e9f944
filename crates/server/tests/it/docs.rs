//! The reference as a page: what it loads, and how it is guarded. That it works in a browser is what
//! `cargo xtask browser` looks at.

use crate::harness::{Options, Server};

/// Every address that the page names.
fn addresses(page: &str) -> Vec<String> {
    let named = page.split(['"', '\'']).skip(1).step_by(2);
    let named = named.filter(|text| text.starts_with("docs/") || text.contains("//"));
    named.map(str::to_owned).collect()
}

#[test]
fn the_page_loads_from_nowhere_else() {
    let server = Server::start(Options::default());
    let page = server.get("/docs").send();
    assert_eq!(page.status, 200);
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let addresses = addresses(&page.text);
    assert_eq!(addresses.len(), 6, "{addresses:?}");
    for address in addresses {
        let (status, head) = server.get(&format!("/{address}")).answer_head();
        assert_eq!(status, 200, "{address}");
        assert!(head.contains("x-content-type-options: nosniff"), "{address}: {head}");
    }
}

#[test]
fn assets_are_kept_by_whoever_loaded_them() {
    let server = Server::start(Options::default());
    let ask = || server.get("/docs/swagger-ui.css");
    let plain = ask().header("Accept-Encoding", "identity").send();
    assert!(plain.text.contains(".swagger-ui"), "{} bytes", plain.text.len());
    assert!(!plain.headers.contains_key("content-encoding"));
    assert_eq!(plain.headers["content-type"], "text/css; charset=utf-8");
    assert_eq!(plain.headers["vary"], "Accept-Encoding");
    assert_eq!(plain.headers["cache-control"], "public, max-age=86400");
    let (status, packed) = ask().answer_head();
    assert_eq!(status, 200);
    assert!(packed.contains("content-encoding: gzip"), "{packed}");
    let tag = plain.headers["etag"].to_str().unwrap().to_owned();
    assert!(!packed.contains(&tag), "two forms, two tags: {packed}");
    let again = ask()
        .header("Accept-Encoding", "identity")
        .header("If-None-Match", &tag)
        .send();
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}

#[test]
fn nothing_else_is_served() {
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
