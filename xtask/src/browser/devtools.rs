//! Controls Chromium by its DevTools protocol over two pipes: JSON messages, each terminated by a zero byte.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use recado_testkit::{process, signals};
use serde_json::{Value, json};

const ANSWER: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(10);

/// The browser reads the protocol from descriptor 3 and writes it to 4: our two pipes, moved there by the shell.
const LAUNCH: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >&2";

/// A headless browser with one page. It ends when it is dropped.
pub(super) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// The events that the page sent, in order.
    pub(super) events: Vec<Value>,
}

impl Browser {
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Self> {
        let log = dir.join("chromium.log");
        let errors = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = Command::new("sh")
            .args(["-c", LAUNCH, "sh"])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--window-size=1280,1600",
            ])
            // Requests of the page to other hosts fail.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", dir.join("chromium").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (Some(to), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the browser has no pipes");
        };
        let (sender, from) = channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            next: 0,
            session: None,
            events: Vec::new(),
        };
        match browser.attach() {
            Ok(()) => Ok(browser),
            Err(failure) => bail!("{failure:#}\n{}", process::tail(&log)),
        }
    }

    /// Opens a new page, to which all further calls apply.
    fn attach(&mut self) -> Result<()> {
        let page = self.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let target = page.get("targetId").cloned().unwrap_or_default();
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }))?;
        self.session = attached.get("sessionId").and_then(Value::as_str).map(str::to_owned);
        Ok(())
    }

    /// Calls a method and waits for its result.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let (Some(session), Some(fields)) = (&self.session, message.as_object_mut()) {
            fields.insert("sessionId".to_owned(), session.clone().into());
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let sent = self.to.write_all(&bytes).and_then(|()| self.to.flush());
        sent.with_context(|| format!("cannot send {method} to the browser"))?;
        let start = Instant::now();
        loop {
            let left = ANSWER.saturating_sub(start.elapsed());
            let mut message = match self.from.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => bail!("the browser did not respond to {method}"),
                Err(RecvTimeoutError::Disconnected) => bail!("the browser has ended"),
            };
            if message.get("id") != Some(&self.next.into()) {
                self.events.push(message);
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message.get_mut("result").map(Value::take).unwrap_or_default());
        }
    }

    /// Evaluates an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params)?;
        if let Some(thrown) = result.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(result.pointer("/result/value").cloned().unwrap_or_default())
    }

    /// Waits until an expression is truthy and returns its value.
    pub(super) fn until(&mut self, expression: &str, deadline: Duration) -> Result<Value> {
        let start = Instant::now();
        loop {
            let value = self.evaluate(expression)?;
            let is_there = match &value {
                Value::Null => false,
                Value::Bool(answer) => *answer,
                Value::String(text) => !text.is_empty(),
                _ => true,
            };
            if is_there {
                return Ok(value);
            }
            if start.elapsed() > deadline {
                bail!("timed out waiting in the page for: {expression}");
            }
            signals::pause()?;
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.call("Browser.close", json!({}));
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > END {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
