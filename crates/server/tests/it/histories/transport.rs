//! The way of a request to one of two servers, and the recording of calls.

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Instant;

use super::checker::{Model, Operation, check};
use super::proxy::Proxy;
use crate::harness::client::{Reply, Request};
use crate::harness::rng::TestRng;
use crate::harness::until;

/// What a client learns from a call.
pub(super) enum Outcome<T> {
    Known(T),
    /// The call may have had an effect, or may have one later.
    Unknown,
    /// The call had no effect.
    NotDone,
}

/// A request that was sent, with the times of call and response.
pub(super) struct Sent {
    pub(super) called_at: u64,
    pub(super) outcome: Outcome<Reply>,
    pub(super) responded_at: u64,
}

/// The operations of a key in the order in which they ended.
pub(super) struct KeyHistory<M: Model>(Mutex<Vec<Operation<M>>>);

impl<M: Model> Default for KeyHistory<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Model> KeyHistory<M> {
    pub(super) fn push(&self, operation: Operation<M>) {
        self.0.lock().unwrap().push(operation);
    }

    pub(super) fn check(&self, key: &str) -> Result<(), String> {
        check(&self.0.lock().unwrap()).map_err(|report| format!("{key} is not linearizable:\n{report}"))
    }
}

/// The connection to two servers on one database.
pub(super) struct Transport {
    /// The ports of the servers, which change at a restart.
    pub(super) ports: [AtomicU16; 2],
    began: Instant,
    /// The number of calls that reached a server.
    calls: AtomicUsize,
    proxy: Option<Proxy>,
}

impl Transport {
    pub(super) fn new(ports: [u16; 2], proxy: Option<Proxy>) -> Self {
        Self {
            ports: ports.map(AtomicU16::new),
            began: Instant::now(),
            calls: AtomicUsize::new(0),
            proxy,
        }
    }

    /// Microseconds since the history began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Sends the request to this server. A broken connection and a 503 leave the outcome open: the database may lose a
    /// connection while it commits.
    fn send(&self, server: usize, request: Request) -> Outcome<Reply> {
        let request = request.at(self.ports[server].load(Ordering::SeqCst));
        let sent = match &self.proxy {
            Some(proxy) => proxy.send(request),
            None => request.try_send(),
        };
        match sent {
            Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                until("a server listens", || self.is_listening());
                Outcome::NotDone
            }
            Err(_) => Outcome::Unknown,
            Ok(reply) if reply.status == 503 => Outcome::Unknown,
            Ok(reply) => Outcome::Known(reply),
        }
    }

    fn is_listening(&self) -> bool {
        let mut ports = self.ports.iter().map(|port| port.load(Ordering::SeqCst));
        ports.any(|port| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }
}

/// A client that makes one call after the other.
pub(super) struct Client<'a> {
    pub(super) number: usize,
    pub(super) rng: TestRng,
    pub(super) transport: &'a Transport,
    /// The number of values that the client has written.
    values: u64,
}

impl<'a> Client<'a> {
    pub(super) fn new(number: usize, rng: TestRng, transport: &'a Transport) -> Self {
        Self {
            number,
            rng,
            transport,
            values: 0,
        }
    }

    /// A value that no other call writes.
    pub(super) fn new_value(&mut self) -> String {
        self.values += 1;
        format!("v{}-{}", self.number, self.values)
    }

    pub(super) fn pick<'b, T>(&mut self, items: &'b [T]) -> Option<&'b T> {
        let bound = u64::try_from(items.len()).unwrap().max(1);
        items.get(usize::try_from(self.rng.below(bound)).unwrap())
    }

    /// Sends a request to a random server.
    pub(super) fn send(&mut self, request: Request) -> Sent {
        let called_at = self.transport.now();
        let server = usize::try_from(self.rng.below(2)).unwrap();
        let outcome = self.transport.send(server, request);
        if !matches!(outcome, Outcome::NotDone) {
            self.transport.calls.fetch_add(1, Ordering::SeqCst);
        }
        Sent {
            called_at,
            outcome,
            responded_at: self.transport.now(),
        }
    }

    /// Makes a call and records it. Returns the response if it is known.
    pub(super) fn call<M: Model>(
        &mut self,
        history: &KeyHistory<M>,
        call: M::Call,
        request: Request,
        read: impl FnOnce(&Reply) -> Outcome<M::Response>,
    ) -> Option<M::Response> {
        let sent = self.send(request);
        self.record(history, call, &sent, read)
    }

    /// Records a call, unless it had no effect. Returns the response if it is known.
    pub(super) fn record<M: Model>(
        &self,
        history: &KeyHistory<M>,
        call: M::Call,
        sent: &Sent,
        read: impl FnOnce(&Reply) -> Outcome<M::Response>,
    ) -> Option<M::Response> {
        let outcome = match &sent.outcome {
            Outcome::Known(reply) => read(reply),
            Outcome::Unknown => Outcome::Unknown,
            Outcome::NotDone => Outcome::NotDone,
        };
        let response = match outcome {
            Outcome::Known(response) => Some(response),
            Outcome::Unknown => None,
            Outcome::NotDone => return None,
        };
        history.push(Operation {
            client: self.number,
            call,
            called_at: sent.called_at,
            response: response.clone().map(|response| (sent.responded_at, response)),
        });
        response
    }
}
