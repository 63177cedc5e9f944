//! Load clients that send requests concurrently, at full speed or at a fixed rate, and measure every response.
//!
//! wrk has no fixed rate and does not report the latency per kind of response. All clients share one thread, which
//! sleeps in epoll until a response arrives or a request is due. A thread per client would compete with the server for
//! the processors.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::iter::Cycle;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::slice;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::load::Request;
use super::times::Latencies;

/// Time limit for a response, and for sending the last request after it was due.
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

/// When requests are due.
enum Schedule {
    /// Closed loop: each client sends its next request when it has the response to the one before.
    Closed { end: Instant },
    /// Open loop: request `n` is due at `began + n * interval`, whether or not earlier ones were answered.
    Open {
        began: Instant,
        interval: Duration,
        next: u32,
        count: u32,
    },
}

impl Schedule {
    fn open(began: Instant, rate: f64, seconds: u32) -> Result<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / rate).with_context(|| format!("{rate}/s is not a rate"))?;
        let count = Duration::from_secs(seconds.into()).as_nanos() / interval.as_nanos().max(1);
        Ok(Self::Open {
            began,
            interval,
            next: 0,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        })
    }

    /// The time at which the next request is due. None: there are no more.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        match *self {
            Self::Closed { end } => (now < end).then_some(now),
            Self::Open {
                began,
                interval,
                next,
                count,
            } => (next < count).then(|| began + interval * next),
        }
    }

    /// Removes the next request if it is due, and returns when it was due.
    fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due(now).filter(|due| *due <= now)?;
        if let Self::Open { next, .. } = self {
            *next += 1;
        }
        Some(due)
    }

    /// Removes the next request if it was due `TIMEOUT` ago.
    fn take_overdue(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next_due(now).filter(|due| *due + TIMEOUT < now)?;
        self.take_due(due)
    }
}

/// The responses to all clients of a load.
pub(super) struct Responses {
    /// Latency of every request from when it was due, so that the wait for a free client counts (no coordinated
    /// omission). A request that was not served counts as at least `TIMEOUT`.
    pub(super) since_due: Latencies,
    /// Service time: latency of each success from when it was sent.
    pub(super) served: Latencies,
    /// Latency of each 503 with `Retry-After` from when it was sent.
    pub(super) refused: Latencies,
    /// Number of other responses and of requests without a response.
    pub(super) failed: u32,
    seconds: f64,
}

impl Responses {
    fn new() -> Result<Self> {
        Ok(Self {
            since_due: Latencies::new()?,
            served: Latencies::new()?,
            refused: Latencies::new()?,
            failed: 0,
            seconds: 0.0,
        })
    }

    /// Successes per second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.served.count()).unwrap_or(u32::MAX)) / self.seconds
    }

    fn add(&mut self, head: &Head, due: Instant, sent_at: Instant) {
        let now = Instant::now();
        let service_time = now.saturating_duration_since(sent_at);
        match *head {
            Head { status: 200, .. } => {
                self.served.record(service_time);
                self.since_due.record(now.saturating_duration_since(due));
                return;
            }
            Head {
                status: 503,
                has_retry_after: true,
                ..
            } => self.refused.record(service_time),
            _ => self.failed += 1,
        }
        self.add_unserved(due);
    }

    fn add_failed(&mut self, due: Instant) {
        self.failed += 1;
        self.add_unserved(due);
    }

    fn add_unserved(&mut self, due: Instant) {
        self.since_due.record(due.elapsed().max(TIMEOUT));
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
        let serialize = |Request { path, headers, body }: &Request| {
            let headers: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let (method, body) = body.as_ref().map_or(("GET", ""), |body| ("POST", body));
            let length = body.len();
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}content-length: {length}\r\n\r\n{body}")
                .into_bytes()
        };
        Self {
            port,
            requests: requests.iter().map(serialize).collect(),
        }
    }

    /// Closed loop: `clients` clients send without a pause.
    pub(super) fn saturate(&self, clients: usize, seconds: u32) -> Result<Responses> {
        let end = Instant::now() + Duration::from_secs(seconds.into());
        self.run(clients, Schedule::Closed { end })
    }

    /// Open loop: sends `rate` requests per second, at most `clients` at a time.
    pub(super) fn at_rate(&self, clients: usize, rate: f64, seconds: u32) -> Result<Responses> {
        self.run(clients, Schedule::open(Instant::now(), rate, seconds)?)
    }

    fn run(&self, clients: usize, schedule: Schedule) -> Result<Responses> {
        let began = Instant::now();
        let mut pool = ClientPool::new(self, clients, schedule)?;
        let mut responses = Responses::new()?;
        let mut checked = began;
        loop {
            let now = Instant::now();
            pool.send_due(now, &mut responses);
            if now > checked + TIMEOUT_CHECK {
                pool.abort_timed_out(now, &mut responses);
                checked = now;
            }
            let Some(wake) = pool.next_wake(now) else {
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
    port: u16,
    requests: Cycle<slice::Iter<'a, Vec<u8>>>,
    schedule: Schedule,
    clients: Vec<LoadClient>,
    /// The clients without a request in flight. They take turns, so that all connections are used.
    idle: VecDeque<usize>,
    /// The epoll instance that watches the connections.
    poller: OwnedFd,
    events: Vec<epoll::Event>,
}

impl<'a> ClientPool<'a> {
    fn new(load: &'a LoadClients, clients: usize, schedule: Schedule) -> Result<Self> {
        Ok(Self {
            port: load.port,
            requests: load.requests.iter().cycle(),
            schedule,
            clients: (0..clients).map(|_| LoadClient::default()).collect(),
            idle: (0..clients).collect(),
            poller: epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot create an epoll instance")?,
            events: Vec::with_capacity(clients),
        })
    }

    /// Sends the requests that are due while a client is idle.
    fn send_due(&mut self, now: Instant, responses: &mut Responses) {
        for _ in 0..self.idle.len() {
            let Some(due) = self.schedule.take_due(now) else {
                return;
            };
            if let Some(number) = self.idle.pop_front()
                && let Some(client) = self.clients.get_mut(number)
                && let Some(request) = self.requests.next()
                && client.send(request, due, (self.port, number), &self.poller).is_err()
            {
                client.abort(responses);
                self.idle.push_back(number);
            }
        }
    }

    /// The latest time of the next step. None: the load is complete.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let in_flight = self.idle.len() < self.clients.len();
        match self.schedule.next_due(now) {
            Some(due) if !self.idle.is_empty() => Some(due),
            next => (in_flight || next.is_some()).then(|| now + TIMEOUT_CHECK),
        }
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
                self.idle.push_back(number);
            }
        }
        Ok(())
    }

    /// Aborts the requests without a response within `TIMEOUT`, and those that could not be sent within it.
    fn abort_timed_out(&mut self, now: Instant, responses: &mut Responses) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            if client.in_flight.is_some_and(|(_, sent_at)| now > sent_at + TIMEOUT) {
                client.abort(responses);
                self.idle.push_back(number);
            }
        }
        while self.idle.is_empty()
            && let Some(due) = self.schedule.take_overdue(now)
        {
            responses.add_failed(due);
        }
    }
}

/// A client: sends a request, and waits for the response.
#[derive(Default)]
struct LoadClient {
    stream: Option<TcpStream>,
    /// When the request in flight was due, and when it was sent.
    in_flight: Option<(Instant, Instant)>,
    response: Vec<u8>,
}

impl LoadClient {
    fn send(&mut self, request: &[u8], due: Instant, (port, number): (u16, usize), poller: &OwnedFd) -> io::Result<()> {
        self.in_flight = Some((due, Instant::now()));
        self.response.clear();
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed => {
                let stream = closed.insert(connect(port)?);
                // The kernel stops watching a connection when it is closed.
                let number = epoll::EventData::new_u64(u64::try_from(number).unwrap_or(u64::MAX));
                epoll::add(poller, &*stream, number, epoll::EventFlags::IN)?;
                stream
            }
        };
        // A request is small: it fits into the kernel's send buffer of an idle connection.
        stream.write_all(request)
    }

    /// Reads what has arrived of the response. True: the request is complete or failed.
    fn read(&mut self, responses: &mut Responses) -> bool {
        let mut buffer = [0; READ_BUFFER];
        let read = self.stream.as_mut().map(|stream| stream.read(&mut buffer));
        let (read, (due, sent_at)) = match (read, self.in_flight) {
            (Some(Err(error)), _) if error.kind() == io::ErrorKind::WouldBlock => return false,
            (Some(Ok(read)), Some(in_flight)) if read > 0 => (read, in_flight),
            // The server closed an idle connection: the next request opens another one.
            (_, None) => {
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
        responses.add(&head, due, sent_at);
        self.in_flight = None;
        true
    }

    fn abort(&mut self, responses: &mut Responses) {
        if let Some((due, _)) = self.in_flight.take() {
            responses.add_failed(due);
        }
        self.stream = None;
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
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn schedule_is_independent_of_responses() {
        let began = Instant::now();
        let after = |ms: u64| began + Duration::from_millis(ms);
        let mut schedule = Schedule::open(began, 100.0, 1).unwrap();
        assert_eq!(schedule.take_due(began), Some(began));
        assert_eq!(schedule.take_due(began), None);
        assert_eq!(schedule.next_due(began), Some(after(10)));
        // Nothing was sent for 90 s: every request is still due at its time, and those of the first 60 s are overdue.
        let late = after(90_000);
        assert_eq!(schedule.take_due(late), Some(after(10)));
        let overdue: Vec<_> = std::iter::from_fn(|| schedule.take_overdue(late)).collect();
        assert_eq!(
            (overdue.len(), overdue.first(), overdue.last()),
            (98, Some(&after(20)), Some(&after(990)))
        );
        assert_eq!(schedule.next_due(late), None);
        let mut closed = Schedule::Closed { end: after(1) };
        assert_eq!(closed.take_due(began), Some(began));
        assert_eq!((closed.take_overdue(began), closed.take_due(after(1))), (None, None));
    }

    /// An HTTP server whose response to request `stalled_at` and all later ones waits until `STALL` has passed.
    fn stalling_server(connections: usize, stalled_at: usize) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let (mut stream, requests) = (stream.unwrap(), Arc::clone(&requests));
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    // A request arrives in one read.
                    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                        let mut count = requests.lock().unwrap();
                        *count += 1;
                        if *count == stalled_at {
                            std::thread::sleep(STALL);
                        }
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                            .unwrap();
                    }
                });
            }
        });
        port
    }

    const STALL: Duration = Duration::from_millis(300);

    #[test]
    fn requests_due_during_a_stall_are_late() {
        // 200 requests, one due every 5 ms. The stall begins when request 150 arrives and outlasts the schedule.
        let request = Request {
            path: "/".to_owned(),
            headers: Vec::new(),
            body: None,
        };
        let clients = LoadClients::new(stalling_server(2, 150), &[request]);
        let responses = clients.at_rate(2, 200.0, 1).unwrap();
        assert_eq!((responses.since_due.count(), responses.served.count()), (200, 200));
        // Request 150 + n waits at least 300 - 5 n ms: those up to 190 at least 100 ms. Of two, one may overtake.
        assert!(responses.since_due.count_from(Duration::from_millis(99)) >= 38);
    }

    #[test]
    fn unserved_requests_count_as_late() {
        let mut responses = Responses::new().unwrap();
        let now = Instant::now();
        let head = |status, has_retry_after| Head {
            status,
            has_retry_after,
            length: 0,
            body_at: 0,
        };
        responses.add(&head(200, false), now, now);
        responses.add(&head(503, true), now, now);
        responses.add(&head(503, false), now, now);
        responses.add_failed(now);
        assert_eq!(
            (responses.served.count(), responses.refused.count(), responses.failed),
            (1, 1, 2)
        );
        assert_eq!(
            (responses.since_due.count(), responses.since_due.count_from(TIMEOUT)),
            (4, 3)
        );
    }

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
