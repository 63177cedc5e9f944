//! Many callers at once, as many requests a second as they can or as they are told, who take the time of each answer.
//!
//! wrk cannot keep to a pace, and does not say which answers took how long. All callers are one thread, which sleeps
//! until an answer comes or a request is due: a thread for each would stand in line for the processors with the server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::load::Request;
use super::times::Times;
use crate::error::{Context, Result};

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How often it is looked whether that is over for somebody.
const LOOK: Duration = Duration::from_millis(100);

/// The most that is read at one go.
const PIECE: usize = 4 * 1024;

/// Requests to one server.
pub(super) struct LoadClients {
    port: u16,
    requests: Vec<Vec<u8>>,
}

/// What so many callers were answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Milliseconds of each success, from when it was asked for.
    served: Vec<f64>,
    /// The same from when it was due: where a pace was told, a request that its caller could not yet make waited, too.
    waited: Vec<f64>,
    /// Milliseconds of each 503 that says when to come again.
    refused: Vec<f64>,
    /// All that was answered otherwise, or not at all.
    pub(super) broken: u32,
    seconds: f64,
}

impl Answers {
    pub(super) fn served(&self) -> Times {
        Times::of(self.served.clone())
    }

    pub(super) fn waited(&self) -> Times {
        Times::of(self.waited.clone())
    }

    pub(super) fn refused(&self) -> Times {
        Times::of(self.refused.clone())
    }

    /// Successes a second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.served.len()).unwrap_or(u32::MAX)) / self.seconds
    }
}

/// The end of an answer: its status, and whether it says when to come again.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    comes_again: bool,
    length: usize,
    /// Where the body begins.
    ends_at: usize,
}

impl LoadClients {
    pub(super) fn new(port: u16, requests: &[Request]) -> Self {
        let written = |Request { path, headers, .. }: &Request| {
            let headers: String = headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
        };
        Self {
            port,
            requests: requests.iter().map(written).collect(),
        }
    }

    /// So many callers for so long; `pace`: requests a second of all of them together.
    pub(super) fn call(&self, callers: u32, pace: Option<f64>, seconds: u32) -> Result<Answers> {
        let began = Instant::now();
        let end = began + Duration::from_secs(seconds.into());
        let step = pace.map(|pace| Duration::from_secs_f64(f64::from(callers) / pace));
        let line = (0..callers).map(|number| Caller {
            load_clients: self,
            next: usize::try_from(number).unwrap_or_default(),
            due: step.map_or(began, |step| began + step * number / callers),
            step,
            stream: None,
            asked: None,
            answer: Vec::with_capacity(PIECE),
        });
        let mut line = Line::of(line.collect())?;
        let mut answers = Answers::default();
        let mut looked = began;
        loop {
            let now = Instant::now();
            line.ask(now, end, &mut answers);
            if now > looked + LOOK {
                line.give_up(now, &mut answers);
                looked = now;
            }
            let Some(wake) = line.wakes(now, end) else {
                break;
            };
            line.take(wake.saturating_duration_since(Instant::now()), &mut answers)?;
        }
        answers.seconds = began.elapsed().as_secs_f64();
        Ok(answers)
    }
}

/// All callers. What is done for an answer does not grow with their number: the processors are the server's, too.
struct Line<'a> {
    callers: Vec<Caller<'a>>,
    /// When each of those is due who wait for no answer, by their numbers.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Tells whom something has come for.
    came: OwnedFd,
    events: Vec<epoll::Event>,
}

impl<'a> Line<'a> {
    fn of(callers: Vec<Caller<'a>>) -> Result<Self> {
        let due = callers
            .iter()
            .enumerate()
            .map(|(number, caller)| Reverse((caller.due, number)));
        Ok(Self {
            due: due.collect(),
            came: epoll::create(epoll::CreateFlags::CLOEXEC).context(|| "cannot wait for answers".to_owned())?,
            events: Vec::with_capacity(callers.len()),
            callers,
        })
    }

    /// Asks for all whose time it is.
    fn ask(&mut self, now: Instant, end: Instant, answers: &mut Answers) {
        while now < end
            && let Some(Reverse((due, number))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            if let Some(caller) = self.callers.get_mut(number)
                && caller.ask(now, number, &self.came).is_err()
            {
                caller.break_off(answers);
                self.due.push(Reverse((caller.due, number)));
            }
        }
    }

    /// When something is to be done, whatever comes; none: all are done.
    fn wakes(&self, now: Instant, end: Instant) -> Option<Instant> {
        let next = self.due.peek().map(|Reverse((due, _))| *due);
        let next = next.filter(|due| now < end && *due < end);
        let awaited = self.due.len() < self.callers.len();
        next.or_else(|| awaited.then(|| now + LOOK))
    }

    /// Takes what comes within so long.
    fn take(&mut self, within: Duration, answers: &mut Answers) -> Result<()> {
        let within = Timespec::try_from(within).context(|| "a wait is too long".to_owned())?;
        self.events.clear();
        match epoll::wait(&self.came, spare_capacity(&mut self.events), Some(&within)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context(|| "cannot wait for answers".to_owned()),
        }
        for event in &self.events {
            let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if let Some(caller) = self.callers.get_mut(number)
                && caller.take(answers)
            {
                self.due.push(Reverse((caller.due, number)));
            }
        }
        Ok(())
    }

    /// Breaks off what has not been answered in time.
    fn give_up(&mut self, now: Instant, answers: &mut Answers) {
        for (number, caller) in self.callers.iter_mut().enumerate() {
            if caller.asked.is_some_and(|asked| now > asked + TIMEOUT) {
                caller.break_off(answers);
                self.due.push(Reverse((caller.due, number)));
            }
        }
    }
}

/// Who asks, waits for the answer, and asks again.
struct Caller<'a> {
    load_clients: &'a LoadClients,
    /// The place of its next request among those of the load_clients.
    next: usize,
    /// When that is to be made.
    due: Instant,
    step: Option<Duration>,
    stream: Option<TcpStream>,
    /// When it asked, while an answer is waited for.
    asked: Option<Instant>,
    answer: Vec<u8>,
}

impl Caller<'_> {
    fn ask(&mut self, now: Instant, number: usize, came: &OwnedFd) -> io::Result<()> {
        self.asked = Some(now);
        self.answer.clear();
        let requests = &self.load_clients.requests;
        let request = requests.get(self.next.checked_rem(requests.len()).unwrap_or_default());
        self.next += 1;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            held => {
                let stream = held.insert(connect(self.load_clients.port)?);
                // Closed, it is no longer watched.
                let number = epoll::EventData::new_u64(u64::try_from(number).unwrap_or(u64::MAX));
                epoll::add(came, &*stream, number, epoll::EventFlags::IN)?;
                stream
            }
        };
        // A request is small: it fits into what the kernel holds for an idle connection.
        stream.write_all(request.map(Vec::as_slice).unwrap_or_default())
    }

    /// Takes what came of an answer, and says whether that is all of it.
    fn take(&mut self, answers: &mut Answers) -> bool {
        let mut piece = [0; PIECE];
        let read = match self.stream.as_mut().map(|stream| stream.read(&mut piece)) {
            Some(Ok(read)) if read > 0 && self.asked.is_some() => read,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // Closed while nothing was asked: the next request opens another one.
            _ if self.asked.is_none() => {
                self.stream = None;
                return false;
            }
            _ => {
                self.break_off(answers);
                return true;
            }
        };
        self.answer.extend_from_slice(piece.get(..read).unwrap_or_default());
        let Some(head) = head(&self.answer).filter(|head| self.answer.len() >= head.ends_at + head.length) else {
            return false;
        };
        let now = Instant::now();
        let since = |moment: Instant| now.saturating_duration_since(moment).as_secs_f64() * 1000.0;
        let took = since(self.asked.unwrap_or(now));
        match head {
            Head { status: 200, .. } => {
                answers.served.push(took);
                answers.waited.push(since(self.due));
            }
            Head {
                status: 503,
                comes_again: true,
                ..
            } => answers.refused.push(took),
            _ => answers.broken += 1,
        }
        self.end();
        true
    }

    fn break_off(&mut self, answers: &mut Answers) {
        answers.broken += 1;
        self.stream = None;
        self.end();
    }

    fn end(&mut self) {
        self.asked = None;
        self.due = self.step.map_or_else(Instant::now, |step| self.due + step);
    }
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The head of an answer, once it is there.
fn head(text: &[u8]) -> Option<Head> {
    let ends_at = text.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = str::from_utf8(text.get(..ends_at)?).ok()?;
    let of = |wanted: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then_some(value))
    };
    Some(Head {
        status: head.split(' ').nth(1)?.parse().ok()?,
        comes_again: of("retry-after").is_some(),
        length: of("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or_default(),
        ends_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read() {
        let text = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nRetry-After: 1\r\n\r\n{}";
        let expected = Head {
            status: 503,
            comes_again: true,
            length: 2,
            ends_at: text.len() - 2,
        };
        assert_eq!(head(text), Some(expected));
        assert_eq!(head(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
