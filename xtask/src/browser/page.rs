//! The page of the API reference: what it shows and how it reacts to a user.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::devtools::Browser;

const DEADLINE: Duration = Duration::from_secs(60);

/// Helper functions that are evaluated in the page.
const HELPERS: &str = include_str!("helpers.js");

pub(super) struct Page {
    browser: Browser,
    base: String,
}

impl Page {
    /// Loads `/docs` and records all network, console and security events.
    pub(super) fn open(mut browser: Browser, base: &str) -> Result<Self> {
        for domain in ["Page", "Network", "Runtime", "Log", "Audits"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": HELPERS }))?;
        browser.call("Page.navigate", json!({ "url": format!("{base}/docs") }))?;
        Ok(Self {
            browser,
            base: base.to_owned(),
        })
    }

    /// Waits until the page shows this many operations.
    pub(super) fn shows(&mut self, operations: usize) -> Result<()> {
        let shown = "reference.operations().length";
        let there = self.browser.until(&format!("{shown} >= {operations}"), DEADLINE);
        let count = self.browser.evaluate(shown)?;
        match there {
            Ok(_) if count == json!(operations) => Ok(()),
            _ => bail!("the page shows {count} operations, the document has {operations}"),
        }
    }

    /// Executes a GET with the current credentials as a user would: open, "Try it out", "Execute".
    pub(super) fn try_out(&mut self, path: &str) -> Result<()> {
        for step in ["opened", "tried", "executed"] {
            self.browser.until(&format!("reference.{step}('{path}')"), DEADLINE)?;
        }
        let status = self.browser.until(&format!("reference.status('{path}')"), DEADLINE)?;
        if status == "200" {
            Ok(())
        } else {
            bail!("GET {path} in the page shows the status {status}")
        }
    }

    /// Enters a secret for this security scheme.
    pub(super) fn authorize(&mut self, scheme: &str, secret: &str) -> Result<()> {
        let paste = format!("reference.pasted({}, {})", json!(scheme), json!(secret));
        self.browser.until("reference.dialogue()", DEADLINE)?;
        self.browser.until(&paste, DEADLINE)?;
        self.browser
            .until(&format!("reference.holds({})", json!(scheme)), DEADLINE)?;
        self.browser.until("reference.closed()", DEADLINE).map(drop)
    }

    /// Removes the secret of this security scheme.
    pub(super) fn leave_authorized(&mut self, scheme: &str) -> Result<()> {
        self.browser.until("reference.dialogue()", DEADLINE)?;
        self.browser
            .until(&format!("reference.left({})", json!(scheme)), DEADLINE)?;
        self.browser.until("reference.closed()", DEADLINE).map(drop)
    }

    pub(super) fn screenshot(&mut self, file: &Path) -> Result<()> {
        let shot = self
            .browser
            .call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = shot.get("data").and_then(Value::as_str).unwrap_or_default();
        let picture = STANDARD.decode(data).context("the browser sent no screenshot")?;
        std::fs::write(file, picture).with_context(|| format!("cannot write {}", file.display()))?;
        println!("        {}", file.display());
        Ok(())
    }

    /// Returns the number of requests. Fails if one left the origin or the page reported an error.
    pub(super) fn check_requests(&self) -> Result<usize> {
        let errors: Vec<String> = self.browser.events.iter().filter_map(error_of).collect();
        if !errors.is_empty() {
            bail!("the page reported errors:\n{}", errors.join("\n"));
        }
        let requests: Vec<&str> = self.browser.events.iter().filter_map(requested).collect();
        let own_origin = format!("{}/", self.base);
        let is_external =
            |url: &&&str| !url.starts_with(&own_origin) && !url.starts_with("data:") && !url.starts_with("blob:");
        match requests.iter().find(is_external) {
            Some(url) => bail!("the page requested {url}"),
            None => Ok(requests.len()),
        }
    }
}

fn requested(event: &Value) -> Option<&str> {
    let requests = event.get("method")? == "Network.requestWillBeSent";
    let url = event.pointer("/params/request/url")?.as_str()?;
    requests.then_some(url)
}

/// The error of an event: an exception, a console error or a violation of the content security policy.
fn error_of(event: &Value) -> Option<String> {
    let is_error = match event.get("method")?.as_str()? {
        "Runtime.exceptionThrown" => true,
        "Log.entryAdded" => event.pointer("/params/entry/level")? == "error",
        "Audits.issueAdded" => event.pointer("/params/issue/code")? == "ContentSecurityPolicyIssue",
        _ => false,
    };
    is_error.then(|| event.get("params").unwrap_or(&Value::Null).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_errors_are_recognized() {
        let logged = |level: &str| json!({ "method": "Log.entryAdded", "params": { "entry": { "level": level } } });
        assert!(error_of(&logged("error")).is_some());
        assert!(error_of(&logged("warning")).is_none());
        let issue =
            json!({ "method": "Audits.issueAdded", "params": { "issue": { "code": "ContentSecurityPolicyIssue" } } });
        assert!(error_of(&issue).is_some());
        assert!(error_of(&json!({ "method": "Page.loadEventFired" })).is_none());
    }

    #[test]
    fn page_requests_are_recognized_by_url() {
        let event = json!({ "method": "Network.requestWillBeSent", "params": { "request": { "url": "http://a/" } } });
        assert_eq!(requested(&event), Some("http://a/"));
        assert_eq!(requested(&json!({ "method": "Page.loadEventFired" })), None);
    }
}
