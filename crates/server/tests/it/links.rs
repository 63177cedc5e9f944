//! Short links.

use serde_json::{Value, json};

use crate::harness::{Server, eventually, text};

fn link(user: &crate::harness::users::User<'_>, url: &str) -> Value {
    user.post("/api/links", json!({ "original_url": url })).created()
}

#[test]
fn link_redirects_and_counts_clicks() {
    let server = Server::new();
    let ana = server.owner();
    let made = link(&ana, "https://loja.example/a?b=c#d");
    let code = text(&made["short_code"]);
    assert!(code.len() >= 11, "{code}");
    assert!(text(&made["short_url"]).ends_with(&format!("/r/{code}")));
    assert_eq!(
        (made["clicks"].clone(), made["campaign_id"].clone()),
        (json!(0), Value::Null)
    );
    for _ in 0..3 {
        // Following a link requires no session.
        let (status, head) = server.request("GET", &format!("/r/{code}")).response_head();
        assert_eq!(status, 302);
        assert!(head.contains("location: https://loja.example/a?b=c#d"), "{head}");
        assert!(head.contains("cache-control: no-store"), "{head}");
    }
    let (status, head) = server.request("HEAD", &format!("/r/{code}")).response_head();
    assert_eq!(status, 302);
    assert!(head.contains("location: https://loja.example/a?b=c#d"), "{head}");
    let listed = eventually("the clicks are written", || {
        let listed = ana.get("/api/links").ok();
        (listed["data"][0]["clicks"] == 3).then_some(listed)
    });
    assert_eq!(listed["data"][0]["short_url"], made["short_url"]);
    for path in ["/r/nowhere", "/r/%00", "/r/..%2F", "/r/'"] {
        let status = server.request("GET", path).response_head().0;
        assert!([404, 422].contains(&status), "{path}: {status}");
    }
    server.request("GET", "/r/nowhere").send().refused(404, "NOT_FOUND");
}

#[test]
fn link_list_is_paged_newest_first() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let mut ids: Vec<String> = (0..5)
        .map(|at| text(&link(&ana, &format!("https://loja.example/{at}"))["id"]))
        .collect();
    ids.reverse();
    link(&bia, "https://outra.example/");
    let (mut seen, mut cursor) = (vec![], String::new());
    loop {
        let page = ana.get(&format!("/api/links?limit=2&cursor={cursor}")).ok();
        seen.extend(page["data"].as_array().unwrap().iter().map(|link| text(&link["id"])));
        if page["hasMore"] == false {
            break;
        }
        cursor = text(&page["nextCursor"]);
    }
    assert_eq!(seen, ids);
    for wrong in ["javascript:alert(1)", "loja.example", "", "https://a.example/\r\nX: y"] {
        assert_eq!(
            ana.post("/api/links", json!({ "original_url": wrong })).invalid(),
            ["original_url"]
        );
    }
    assert_eq!(ana.post("/api/links", json!({})).invalid(), ["original_url"]);
}
