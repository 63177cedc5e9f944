//! Faulty proxies between the clients and the servers, and between the servers and WhatsApp, to check that a history
//! reveals them.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use recado_simulators::raw::{RawServer, Reply as RawReply, Request as RawRequest};
use serde_json::Value;

use crate::harness::client::{Reply, Request};

#[derive(Clone, Copy, Debug)]
pub(super) enum ProxyBug {
    /// Every second GET gets the response to the first one.
    StaleReads,
    /// Every third PUT is acknowledged but not forwarded.
    LostWrites,
    /// Every second DELETE is sent twice, and the client gets the second response.
    RepeatedDeletes,
}

pub(super) struct Proxy {
    bug: ProxyBug,
    /// The first successful response to a GET, by path.
    first: Mutex<HashMap<String, Reply>>,
    requests: AtomicUsize,
}

impl Proxy {
    pub(super) fn new(bug: ProxyBug) -> Self {
        let (first, requests) = Default::default();
        Self { bug, first, requests }
    }

    pub(super) fn send(&self, request: Request) -> Result<Reply, ureq::Error> {
        let head = request.head("");
        let mut line = head.split(' ');
        let (method, path) = (line.next().unwrap(), line.next().unwrap());
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        match (self.bug, method) {
            (ProxyBug::StaleReads, "GET") => {
                let cached = self.first.lock().unwrap().get(path).cloned();
                if let Some(reply) = cached.filter(|_| number.is_multiple_of(2)) {
                    return Ok(reply);
                }
                let reply = request.try_send()?;
                if reply.status == 200 {
                    let mut first = self.first.lock().unwrap();
                    first.entry(path.to_owned()).or_insert_with(|| reply.clone());
                }
                Ok(reply)
            }
            (ProxyBug::LostWrites, "PUT") if number.is_multiple_of(3) => {
                let bytes = String::from_utf8(request.bytes()).unwrap();
                let (_, body) = bytes.split_once("\r\n\r\n").unwrap();
                let changes: Value = serde_json::from_str(body).unwrap();
                let read = Request::new(request.port(), "GET", path);
                let reply = authorized(read, &head).try_send()?;
                Ok(with_changes(reply, &changes))
            }
            (ProxyBug::RepeatedDeletes, "DELETE") if number.is_multiple_of(2) => {
                request.clone().try_send()?;
                request.try_send()
            }
            _ => request.try_send(),
        }
    }
}

/// The request with the authorization of another one.
fn authorized(request: Request, head: &str) -> Request {
    let value = head.lines().find_map(|line| line.strip_prefix("Authorization: "));
    request.header("Authorization", value.unwrap())
}

/// The response to a read, as if the changes had been made.
fn with_changes(reply: Reply, changes: &Value) -> Reply {
    if reply.status != 200 {
        return reply;
    }
    let mut body = reply.json();
    for (field, value) in changes.as_object().unwrap() {
        body["data"][field] = value.clone();
    }
    Reply {
        text: body.to_string(),
        ..reply
    }
}

/// A proxy between the servers and WhatsApp.
pub(super) struct WhatsappProxy {
    server: RawServer,
    target: Arc<Target>,
}

/// Where the proxy forwards requests.
#[derive(Default)]
struct Target {
    /// Host and port; empty before the simulator has started.
    address: Mutex<String>,
    sends: AtomicUsize,
    /// One of so many sends is forwarded twice; 0: none.
    repeated: AtomicUsize,
}

impl WhatsappProxy {
    pub(super) fn start() -> Self {
        let target = Arc::new(Target::default());
        let forwarding = target.clone();
        let server = RawServer::start(move |request| forwarding.forward(request)).unwrap();
        Self { server, target }
    }

    pub(super) fn base_url(&self) -> String {
        format!("{}/v25.0", self.server.origin())
    }

    pub(super) fn forward_to(&self, origin: &str) {
        *self.target.address.lock().unwrap() = origin.trim_start_matches("http://").to_owned();
    }

    /// Forwards one of ten sends twice from now on.
    pub(super) fn repeat_sends(&self) {
        self.target.repeated.store(10, Ordering::SeqCst);
    }
}

impl Target {
    fn forward(&self, request: &RawRequest) -> RawReply {
        let is_send = request.head.lines().next().unwrap().contains("/messages ");
        let repeated = self.repeated.load(Ordering::SeqCst);
        if is_send && repeated > 0 && self.sends.fetch_add(1, Ordering::SeqCst).is_multiple_of(repeated) {
            self.exchange(request).ok();
        }
        self.exchange(request).map_or(RawReply::Reset, RawReply::Last)
    }

    fn exchange(&self, RawRequest { head, body }: &RawRequest) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address.lock().unwrap().as_str())?;
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())?;
        stream.write_all(body)?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        Ok(response)
    }
}
