//! Tests the simulators over HTTP, with a receiver that can refuse callbacks.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod ai;
mod callbacks;
mod command;
mod faults;
mod numbers;
mod payment;
mod receiver;
mod templates;
mod webhooks;
mod whatsapp;

use std::time::{Duration, Instant};

use serde_json::Value;

/// Upper bound of every wait and request. It only ends a test that hangs.
const DEADLINE: Duration = Duration::from_secs(60);

struct Response {
    status: u16,
    retry_after: Option<String>,
    text: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }
}

/// Sends a request. The error is a connection error; every HTTP status is `Ok`.
fn request(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Result<Response, ureq::Error> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(DEADLINE))
        .build();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let agent: ureq::Agent = config.into();
    let mut response = match body {
        Some(body) => agent.run(request.body(body.to_vec()).unwrap())?,
        None => agent.run(request.body(()).unwrap())?,
    };
    let retry_after = response
        .headers()
        .get("retry-after")
        .map(|value| value.to_str().unwrap().to_owned());
    Ok(Response {
        status: response.status().as_u16(),
        retry_after,
        text: response.body_mut().read_to_string()?,
    })
}

fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
