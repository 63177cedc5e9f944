//! Many callers at once, as many requests a second as they can or as they are told, who take the time of each answer.
//!
//! wrk cannot keep to a pace, and does not say which answers took how long.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::load::Request;
use super::times::Times;
use crate::error::{Context, Result, fail};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Requests to one server.
pub(super) struct Crowd {
    port: u16,
    requests: Vec<Vec<u8>>,
}

/// What so many callers were answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Milliseconds of each success. Where a pace was told, they count from the moment a request was due.
    served: Vec<f64>,
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

    pub(super) fn refused(&self) -> Times {
        Times::of(self.refused.clone())
    }

    /// Successes a second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(u32::try_from(self.served.len()).unwrap_or(u32::MAX)) / self.seconds
    }

    fn add(&mut self, other: Self) {
        self.served.extend(other.served);
        self.refused.extend(other.refused);
        self.broken += other.broken;
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
        let length = Duration::from_secs(seconds.into());
        let mut all = Answers::default();
        thread::scope(|scope| {
            let one = |number: u32| {
                let step = pace.map(|pace| Duration::from_secs_f64(f64::from(callers) / pace));
                let first = step.map_or(Duration::ZERO, |step| step * number / callers);
                scope.spawn(move || self.caller(number, began + first, step, began + length))
            };
            let callers: Vec<_> = (0..callers).map(one).collect();
            for caller in callers {
                match caller.join() {
                    Ok(answers) => all.add(answers),
                    Err(_) => return fail("a caller is broken"),
                }
            }
            Ok(())
        })?;
        all.seconds = began.elapsed().as_secs_f64();
        Ok(all)
    }

    fn caller(&self, number: u32, first: Instant, step: Option<Duration>, end: Instant) -> Answers {
        let (mut answers, mut due) = (Answers::default(), first);
        let mut stream: Option<TcpStream> = None;
        let mut requests = self
            .requests
            .iter()
            .cycle()
            .skip(usize::try_from(number).unwrap_or_default());
        while Instant::now() < end {
            if step.is_some() {
                thread::sleep(due.saturating_duration_since(Instant::now()));
            } else {
                due = Instant::now();
            }
            let Some(request) = requests.next() else {
                return answers;
            };
            let head = self.ask(&mut stream, request);
            let took = due.elapsed().as_secs_f64() * 1000.0;
            match head {
                Ok(Head { status: 200, .. }) => answers.served.push(took),
                Ok(Head {
                    status: 503,
                    comes_again: true,
                    ..
                }) => answers.refused.push(took),
                Ok(_) => answers.broken += 1,
                Err(_) => {
                    answers.broken += 1;
                    stream = None;
                }
            }
            due += step.unwrap_or_default();
        }
        answers
    }

    fn ask(&self, held: &mut Option<TcpStream>, request: &[u8]) -> Result<Head> {
        let stream = match held {
            Some(stream) => stream,
            None => held.insert(self.connect().context(|| "cannot connect".to_owned())?),
        };
        let mut talk = || -> std::io::Result<Head> {
            stream.write_all(request)?;
            let mut text = Vec::with_capacity(16 * 1024);
            let mut piece = [0; 16 * 1024];
            loop {
                let read = stream.read(&mut piece)?;
                text.extend_from_slice(piece.get(..read).unwrap_or_default());
                match head(&text) {
                    Some(head) if text.len() >= head.ends_at + head.length => return Ok(head),
                    _ if read == 0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    _ => {}
                }
            }
        };
        talk().context(|| "an answer broke off".to_owned())
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }
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
