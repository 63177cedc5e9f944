//! Load clients that send requests concurrently, at full speed or at a fixed rate, and measure every response.
//!
//! wrk has no fixed rate and does not report the latency per kind of response. All clients share one thread, which
//! sleeps in epoll until a response arrives or a request is due. A thread per client would compete with the server for
//! the processors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::load::Request;
use super::times::Times;

/// Time limit for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between the checks for timed-out requests.
const TIMEOUT_CHECK: Duration = Duration::from_millis(100);

/// Size of the read buffer in bytes.
const READ_BUFFER: usize = 4 * 1024;

/// Requests to one server.
pub(super) struct LoadClients {
    port: u16,
    requests: Vec<Vec<u8>>,
}

/// The responses to all clients of a load.
#[derive(Default)]
pub(super) struct Responses {
    /// Latency of each success in milliseconds, from the time when the request was sent.
    served: Vec<f64>,
    /// Latency of each success from the scheduled start, so that coordinated omission does not hide queueing delay.
    since_schedule: Vec<f64>,
    /// Latency of each 503 with `Retry-After` in milliseconds.
    refused: Vec<f64>,
    /// Number of other responses and of requests without a response.
    pub(super) failed: u32,
    seconds: f64,
}

impl Responses {
    pub(super) fn served(&self) -> Times {
        Times::of(self.served.clone())
    }

    pub(super) fn since_schedule(&self) -> Times {
        Times::of(self.since_schedule.clone())
    }

    pub(super) fn refused(&self) -> Times {
        Times::of(self.refused.clone())
    }

    /// Successes per second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.served.len()).unwrap_or(u32::MAX)) / self.seconds
    }
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    has_retry_after: bool,
    length: usize,
    /// Offset of the body.
    body_at: usize,
}

impl LoadClients {
    pub(super) fn new(port: u16, requests: &[Request]) -> Self {
        let serialize = |Request { path, headers, .. }: &Request| {
            let headers: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
        };
        Self {
            port,
            requests: requests.iter().map(serialize).collect(),
        }
    }

    /// Runs a load of `clients` clients. `rate`: requests per second of all clients together; None: full speed.
    pub(super) fn call(&self, clients: u32, rate: Option<f64>, seconds: u32) -> Result<Responses> {
        let began = Instant::now();
        let end = began + Duration::from_secs(seconds.into());
        let interval = rate.map(|rate| Duration::from_secs_f64(f64::from(clients) / rate));
        let pool = (0..clients).map(|number| LoadClient {
            load_clients: self,
            next: usize::try_from(number).unwrap_or_default(),
            due: interval.map_or(began, |interval| began + interval * number / clients),
            interval,
            stream: None,
            sent_at: None,
            response: Vec::with_capacity(READ_BUFFER),
        });
        let mut pool = ClientPool::new(pool.collect())?;
        let mut responses = Responses::default();
        let mut checked = began;
        loop {
            let now = Instant::now();
            pool.send_due(now, end, &mut responses);
            if now > checked + TIMEOUT_CHECK {
                pool.abort_timed_out(now, &mut responses);
                checked = now;
            }
            let Some(wake) = pool.next_wake(now, end) else {
                break;
            };
            pool.receive(wake.saturating_duration_since(Instant::now()), &mut responses)?;
        }
        responses.seconds = began.elapsed().as_secs_f64();
        Ok(responses)
    }
}

/// All clients of a load. The work per response does not grow with their number, because the server shares the
/// processors.
struct ClientPool<'a> {
    clients: Vec<LoadClient<'a>>,
    /// Due time and number of each client without a request in flight.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The epoll instance that watches the connections.
    poller: OwnedFd,
    events: Vec<epoll::Event>,
}

impl<'a> ClientPool<'a> {
    fn new(clients: Vec<LoadClient<'a>>) -> Result<Self> {
        let due = clients
            .iter()
            .enumerate()
            .map(|(number, client)| Reverse((client.due, number)));
        Ok(Self {
            due: due.collect(),
            poller: epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll instance")?,
            events: Vec::with_capacity(clients.len()),
            clients,
        })
    }

    /// Sends the requests of all clients that are due.
    fn send_due(&mut self, now: Instant, end: Instant, responses: &mut Responses) {
        while now < end
            && let Some(Reverse((due, number))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            if let Some(client) = self.clients.get_mut(number)
                && client.send(now, number, &self.poller).is_err()
            {
                client.abort(responses);
                self.due.push(Reverse((client.due, number)));
            }
        }
    }

    /// The latest time of the next step. None: the load is complete.
    fn next_wake(&self, now: Instant, end: Instant) -> Option<Instant> {
        let next = self.due.peek().map(|Reverse((due, _))| *due);
        let next = next.filter(|due| now < end && *due < end);
        let in_flight = self.due.len() < self.clients.len();
        next.or_else(|| in_flight.then(|| now + TIMEOUT_CHECK))
    }

    /// Waits for events for up to `timeout` and reads what has arrived.
    fn receive(&mut self, timeout: Duration, responses: &mut Responses) -> Result<()> {
        let timeout = Timespec::try_from(timeout).context("the timeout is too long")?;
        self.events.clear();
        match epoll::wait(&self.poller, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for responses"),
        }
        for event in &self.events {
            let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if let Some(client) = self.clients.get_mut(number)
                && client.read(responses)
            {
                self.due.push(Reverse((client.due, number)));
            }
        }
        Ok(())
    }

    /// Aborts the requests without a response within `TIMEOUT`.
    fn abort_timed_out(&mut self, now: Instant, responses: &mut Responses) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            if client.sent_at.is_some_and(|sent_at| now > sent_at + TIMEOUT) {
                client.abort(responses);
                self.due.push(Reverse((client.due, number)));
            }
        }
    }
}

/// A client: sends a request, waits for the response, and starts again.
struct LoadClient<'a> {
    load_clients: &'a LoadClients,
    /// Index of its next request in `LoadClients::requests`, before the modulo.
    next: usize,
    /// Scheduled time of the next request.
    due: Instant,
    interval: Option<Duration>,
    stream: Option<TcpStream>,
    /// Time at which the request in flight was sent.
    sent_at: Option<Instant>,
    response: Vec<u8>,
}

impl LoadClient<'_> {
    fn send(&mut self, now: Instant, number: usize, poller: &OwnedFd) -> io::Result<()> {
        self.sent_at = Some(now);
        self.response.clear();
        let requests = &self.load_clients.requests;
        let request = requests.get(self.next.checked_rem(requests.len()).unwrap_or_default());
        self.next += 1;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed => {
                let stream = closed.insert(connect(self.load_clients.port)?);
                // The kernel stops watching a connection when it is closed.
                let number = epoll::EventData::new_u64(u64::try_from(number).unwrap_or(u64::MAX));
                epoll::add(poller, &*stream, number, epoll::EventFlags::IN)?;
                stream
            }
        };
        // A request is small: it fits into the kernel's send buffer of an idle connection.
        stream.write_all(request.map(Vec::as_slice).unwrap_or_default())
    }

    /// Reads what has arrived of the response. True: the request is complete or failed.
    fn read(&mut self, responses: &mut Responses) -> bool {
        let mut buffer = [0; READ_BUFFER];
        let read = match self.stream.as_mut().map(|stream| stream.read(&mut buffer)) {
            Some(Ok(read)) if read > 0 && self.sent_at.is_some() => read,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The server closed an idle connection: the next request opens another one.
            _ if self.sent_at.is_none() => {
                self.stream = None;
                return false;
            }
            _ => {
                self.abort(responses);
                return true;
            }
        };
        self.response.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let Some(head) = parse_head(&self.response).filter(|head| self.response.len() >= head.body_at + head.length)
        else {
            return false;
        };
        let now = Instant::now();
        let milliseconds_since = |start: Instant| now.saturating_duration_since(start).as_secs_f64() * 1000.0;
        let latency = milliseconds_since(self.sent_at.unwrap_or(now));
        match head {
            Head { status: 200, .. } => {
                responses.served.push(latency);
                responses.since_schedule.push(milliseconds_since(self.due));
            }
            Head {
                status: 503,
                has_retry_after: true,
                ..
            } => responses.refused.push(latency),
            _ => responses.failed += 1,
        }
        self.end_request();
        true
    }

    fn abort(&mut self, responses: &mut Responses) {
        responses.failed += 1;
        self.stream = None;
        self.end_request();
    }

    fn end_request(&mut self) {
        self.sent_at = None;
        self.due = self.interval.map_or_else(Instant::now, |interval| self.due + interval);
    }
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Parses the head of a response. None: it is not complete yet.
fn parse_head(text: &[u8]) -> Option<Head> {
    let body_at = text.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = str::from_utf8(text.get(..body_at)?).ok()?;
    let header = |header_name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(name, value)| name.eq_ignore_ascii_case(header_name).then_some(value))
    };
    Some(Head {
        status: head.split(' ').nth(1)?.parse().ok()?,
        has_retry_after: header("retry-after").is_some(),
        length: header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or_default(),
        body_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_head_is_parsed() {
        let text = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}";
        let expected = Head {
            status: 503,
            has_retry_after: true,
            length: 2,
            body_at: text.len() - 2,
        };
        assert_eq!(parse_head(text), Some(expected));
        assert_eq!(parse_head(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
