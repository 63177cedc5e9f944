//! A small HTTP client without retries, redirects or pooled connections. It checks each response against the OpenAPI
//! document.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use super::{DEADLINE, eventually, reference};

#[derive(Clone)]
pub struct Request {
    port: u16,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    /// The body as text; other bytes are replaced.
    pub text: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(port: u16, method: &str, path: &str) -> Self {
        Self {
            port,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![],
            body: None,
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn query(mut self, query: &str) -> Self {
        self.path = format!("{}?{query}", self.path);
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub fn cookie(self, cookie: &str) -> Self {
        self.header("Cookie", cookie)
    }

    /// Directs the request to the server at another port.
    pub fn at(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Replaces the method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// Replaces the path.
    pub fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub fn body(mut self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self.header("Content-Type", media_type)
    }

    /// Returns the response; panics if the connection fails.
    pub fn send(self) -> Reply {
        let line = format!("{} {}", self.method, self.path);
        self.try_send().unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Repeats the request after each 503 with `Retry-After`: on a busy machine a server responds with 503.
    #[track_caller]
    pub fn send_until_served(self) -> Reply {
        eventually("the server is not too busy", || {
            let reply = self.clone().send();
            if reply.status == 503 {
                assert!(reply.header("retry-after").is_some(), "{}", reply.text);
                std::thread::sleep(Duration::from_secs(2));
                return None;
            }
            Some(reply)
        })
    }

    /// Returns status, headers and body as they are, compressed or not.
    pub fn send_raw(self) -> (u16, ureq::http::HeaderMap, Vec<u8>) {
        let mut response = self.run().unwrap();
        let body = response.body_mut().read_to_vec().unwrap();
        (response.status().as_u16(), response.headers().clone(), body)
    }

    /// Returns the response, or the error of the connection.
    pub fn try_send(self) -> Result<Reply, ureq::Error> {
        let (port, method, path) = (self.port, self.method.clone(), self.path.clone());
        let mut response = self.run()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // An event stream does not end: do not read its body.
        let endless = headers
            .get("content-type")
            .is_some_and(|value| value == "text/event-stream");
        let body = if endless {
            vec![]
        } else {
            response.body_mut().read_to_vec()?
        };
        let reply = Reply {
            status,
            headers,
            text: String::from_utf8_lossy(&body).into_owned(),
            body,
        };
        if !endless && !reference::is_previous_version(port) {
            reference::check(&method, &path, &reply);
        }
        Ok(reply)
    }

    fn run(self) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let uri = format!("http://127.0.0.1:{}{}", self.port, self.path);
        let mut request = ureq::http::Request::builder().method(self.method.as_str()).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match self.body {
            Some(body) => agent().run(request.body(body)?),
            None => agent().run(request.body(())?),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The request head for a raw connection, followed by `last_lines`.
    pub fn head(&self, last_lines: &str) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + last_lines
    }

    /// The whole request as raw bytes, with `Connection: close`.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.body.as_deref().unwrap_or_default();
        let length = match self.body {
            Some(_) => format!("Content-Length: {}\r\n", body.len()),
            None => String::new(),
        };
        let mut bytes = self.head(&format!("Connection: close\r\n{length}\r\n")).into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// The response's status, and its head in lower case. The body may be of any kind.
    pub fn response_head(self) -> (u16, String) {
        let mut stream = connect(self.port);
        let line = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            self.method, self.path
        );
        stream.write_all(line.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let response = String::from_utf8_lossy(&response).to_lowercase();
        let head = response.split("\r\n\r\n").next().unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("no response: {head}")), head.to_owned())
    }

    /// Writes the request with a chunked body and returns the open connection.
    pub fn write_chunked(&self, chunks: &[&[u8]]) -> TcpStream {
        let mut stream = connect(self.port);
        let head = self.head("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        for chunk in chunks {
            // A server that refuses the body may close the connection before everything is written.
            let written = write!(stream, "{:x}\r\n", chunk.len())
                .and_then(|()| stream.write_all(chunk))
                .and_then(|()| stream.write_all(b"\r\n"));
            if written.is_err() {
                return stream;
            }
        }
        stream.write_all(b"0\r\n\r\n").ok();
        stream
    }

    /// Sends the request with a chunked body and returns status and body of the response.
    pub fn send_chunked(&self, chunks: &[&[u8]]) -> (u16, String) {
        let mut stream = self.write_chunked(chunks);
        let mut response = Vec::new();
        stream.read_to_end(&mut response).ok();
        let response = String::from_utf8(response).unwrap();
        let status = response.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        (
            status.unwrap_or_else(|| panic!("no response: {response}")),
            body.unwrap_or_default(),
        )
    }
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}: not JSON: {}", self.status, self.text))
    }

    /// Asserts the status and returns the JSON body.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Asserts status 200 and returns `data`.
    #[track_caller]
    pub fn ok(self) -> Value {
        self.expect(200)["data"].take()
    }

    /// Asserts status 201 and returns `data`.
    #[track_caller]
    pub fn created(self) -> Value {
        self.expect(201)["data"].take()
    }

    /// Asserts status 204 without a body.
    #[track_caller]
    pub fn no_content(self) {
        assert_eq!((self.status, self.text.as_str()), (204, ""));
    }

    /// Asserts status, error code and the error envelope. Returns the error object.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        let mut body = self.expect(status);
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        let error = body["error"].take();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{error}");
        assert!(error["details"].is_object(), "{error}");
        assert_eq!(error.as_object().unwrap().len(), 3, "{error}");
        error
    }

    /// Asserts a validation error and returns the names of the invalid fields.
    #[track_caller]
    pub fn invalid(self) -> Vec<String> {
        let error = self.refused(422, "VALIDATION_ERROR");
        let fields = error["details"]["fields"].as_object().cloned().unwrap();
        for (field, messages) in &fields {
            let messages = messages.as_array().unwrap();
            assert!(
                !messages.is_empty() && messages.iter().all(Value::is_string),
                "{field}: {messages:?}"
            );
        }
        fields.keys().cloned().collect()
    }

    /// The integer value of a header.
    #[track_caller]
    pub fn number(&self, header: &str) -> i64 {
        let value = self.header(header).unwrap_or_else(|| panic!("no {header}: {self:?}"));
        value.parse().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Opens a raw connection to a port of localhost.
pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn agent() -> &'static ureq::Agent {
    static AGENT: OnceLock<ureq::Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(DEADLINE))
            // Tests check redirects themselves.
            .max_redirects(0)
            // No reuse: a pooled connection may lead to a server that was killed.
            .max_idle_connections(0)
            .build()
            .into()
    })
}
