//! `cargo xtask browser`: checks the API reference in a browser.
//!
//! It is a separate command, because Chromium is a large installation. It loads the page from a server with demo data,
//! checks that it shows every operation, and executes some. No request may leave the server's origin or violate the
//! page's content security policy.

mod devtools;
mod page;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use recado_testkit::demo_account;
use recado_testkit::http::Client;
use recado_testkit::product::Product;
use recado_testkit::scratch::Scratch;
use recado_testkit::services::postgres::Purpose;
use recado_testkit::services::{ReservedPort, find};
use recado_testkit::state::{Env, value};
use recado_testkit::token;
use recado_testkit::{paths, signals};
use serde_json::Value;

use devtools::Browser;
use page::Page;

/// `cargo xtask browser`.
pub(crate) fn run() -> Result<()> {
    signals::install()?;
    let chromium = find::chromium_or_install()?;
    let scratch = Scratch::new()?;
    let port = ReservedPort::new()?;
    let product = Product::start(&scratch.dir, Purpose::Tests, port.address())?;
    let base = product.addresses.base_url();
    let operations = operations(&base)?;
    let mut page = Page::open(Browser::start(&chromium, &scratch.dir)?, &base)?;
    page.shows(operations)?;
    println!("ok      the page shows all {operations} operations");
    page.screenshot(&screenshot_file("docs.png")?)?;
    page.try_out("/api/billing/plans")?;
    println!("ok      GET /api/billing/plans without credentials responds with 200");
    page.screenshot(&screenshot_file("docs-tried-out.png")?)?;
    page.authorize("session", &session(&product.env)?)?;
    for path in ["/api/accounts", "/api/contacts"] {
        page.try_out(path)?;
        println!("ok      GET {path} with a pasted session responds with 200");
    }
    page.leave_authorized("session")?;
    page.authorize("apiKeyHeader", value(&product.env, "DEMO_API_KEY")?)?;
    page.try_out("/api/tags")?;
    println!("ok      GET /api/tags with a pasted API key responds with 200");
    let requests = page.check_requests()?;
    println!("ok      {requests} requests, none to another origin, and no violation of the content security policy");
    Ok(())
}

/// The number of operations in the document.
fn operations(base: &str) -> Result<usize> {
    let document = Client::new(base, Vec::new()).get("/api/openapi.json")?;
    let count = count(&document.body);
    if document.status != 200 || count == 0 {
        bail!(
            "/api/openapi.json responded with {}, {count} operations",
            document.status
        );
    }
    Ok(count)
}

/// Counts the operations. A path item also has keys that are not methods.
fn count(document: &Value) -> usize {
    let methods = ["get", "put", "post", "delete", "patch", "head", "options", "trace"];
    let paths = document.get("paths").and_then(Value::as_object);
    let items = paths.into_iter().flat_map(|paths| paths.values());
    let found = items.filter_map(Value::as_object).flat_map(|item| item.keys());
    found.filter(|key| methods.contains(&key.as_str())).count()
}

fn session(env: &Env) -> Result<String> {
    let secret = value(env, "SESSION_JWT_SECRET")?;
    token::sign(
        secret,
        &demo_account::user(),
        demo_account::EMAIL,
        Some(demo_account::NAME),
        1,
    )
}

/// The file for a screenshot of the page.
fn screenshot_file(name: &str) -> Result<PathBuf> {
    let dir = paths::target().join("browser");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(Path::new(&dir).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_counted_by_method() {
        let item = json!({ "parameters": [], "get": {}, "delete": {} });
        assert_eq!(count(&json!({ "paths": { "/a": item, "/b": { "post": {} } } })), 3);
        assert_eq!(count(&json!({})), 0);
    }
}
