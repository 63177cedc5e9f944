//! Many callers at once, as many requests a second as they can or as they are told, who take the time of each answer.
//!
//! wrk cannot keep to a pace, and does not say which answers took how long. All callers are one thread, which sleeps
//! until an answer comes or a request is due: a thread for each would stand in line for the processors with the server.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::load::Request;
use super::times::Times;
use crate::error::{Context, Result};

/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most that is read at one go.
const PIECE: usize = 16 * 1024;

/// Requests to one server.
pub(super) struct Crowd {
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

impl Crowd {
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
        let mut line: Vec<Caller<'_>> = (0..callers)
            .map(|number| Caller {
                crowd: self,
                next: usize::try_from(number).unwrap_or_default(),
                due: step.map_or(began, |step| began + step * number / callers),
                step,
                stream: None,
                asked: None,
                answer: Vec::with_capacity(PIECE),
            })
            .collect();
        let mut answers = Answers::default();
        loop {
            let now = Instant::now();
            for caller in &mut line {
                caller.begin(now, end, &mut answers);
            }
            let Some(wake) = line.iter().filter_map(|caller| caller.wakes(now, end)).min() else {
                break;
            };
            for number in ready(&line, wake.saturating_duration_since(Instant::now()))? {
                if let Some(caller) = line.get_mut(number) {
                    caller.take(&mut answers);
                }
            }
        }
        answers.seconds = began.elapsed().as_secs_f64();
        Ok(answers)
    }
}

/// Those for whom something has come, once it has or the time is over.
fn ready(line: &[Caller<'_>], within: Duration) -> Result<Vec<usize>> {
    let waiting = |(number, caller): (usize, &Caller<'_>)| match (&caller.stream, caller.asked) {
        (Some(_), Some(_)) => Some(number),
        _ => None,
    };
    let numbers: Vec<usize> = line.iter().enumerate().filter_map(waiting).collect();
    let streams = numbers.iter().filter_map(|number| line.get(*number)?.stream.as_ref());
    let mut watched: Vec<PollFd<'_>> = streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let within = Timespec::try_from(within).context(|| "a wait is too long".to_owned())?;
    match poll(&mut watched, Some(&within)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).context(|| "cannot wait for answers".to_owned()),
    }
    let came = watched.iter().map(|watched| !watched.revents().is_empty());
    Ok(numbers
        .into_iter()
        .zip(came)
        .filter_map(|(number, came)| came.then_some(number))
        .collect())
}

/// Who asks, waits for the answer, and asks again.
struct Caller<'a> {
    crowd: &'a Crowd,
    /// The place of its next request among those of the crowd.
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
    /// Asks, where it is time to.
    fn begin(&mut self, now: Instant, end: Instant, answers: &mut Answers) {
        match self.asked {
            Some(asked) if now > asked + TIMEOUT => self.break_off(answers),
            None if self.due <= now && now < end => {
                self.asked = Some(now);
                self.answer.clear();
                if self.ask().is_err() {
                    self.break_off(answers);
                }
            }
            _ => {}
        }
    }

    /// When it has to be looked at, whatever comes; none: it is done.
    fn wakes(&self, now: Instant, end: Instant) -> Option<Instant> {
        match self.asked {
            Some(asked) => Some(asked + TIMEOUT),
            None => (now < end && self.due < end).then_some(self.due),
        }
    }

    fn ask(&mut self) -> io::Result<()> {
        let requests = &self.crowd.requests;
        let request = requests.get(self.next.checked_rem(requests.len()).unwrap_or_default());
        self.next += 1;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            held => held.insert(connect(self.crowd.port)?),
        };
        // A request is small: it fits into what the kernel holds for an idle connection.
        stream.write_all(request.map(Vec::as_slice).unwrap_or_default())
    }

    /// Takes what came of an answer.
    fn take(&mut self, answers: &mut Answers) {
        let mut piece = [0; PIECE];
        let read = match self.stream.as_mut().map(|stream| stream.read(&mut piece)) {
            Some(Ok(read)) if read > 0 => read,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => return self.break_off(answers),
        };
        self.answer.extend_from_slice(piece.get(..read).unwrap_or_default());
        if let Some(head) = head(&self.answer).filter(|head| self.answer.len() >= head.ends_at + head.length) {
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
        }
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
    let lines = String::from_utf8_lossy(text.get(..ends_at)?).to_lowercase();
    let of = |name: &str| {
        lines
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    Some(Head {
        status: lines.split(' ').nth(1)?.parse().ok()?,
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
