//! Servers that say whatever bytes a test has for them: for answers that no proper server gives.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::locked;

/// Bind address: a free port of this machine.
pub const ANY_FREE_PORT: &str = "127.0.0.1:0";

/// Hands every connection to a function, each on a thread of its own. Dropped, it closes them all and its port.
pub struct Acceptor {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    accepted: AtomicUsize,
    open: Mutex<HashMap<usize, TcpStream>>,
}

impl Acceptor {
    /// Returns when the port listens. A connection is closed when `handle` returns.
    pub fn start(bind: &str, handle: impl Fn(&TcpStream) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(bind)?;
        let address = listener.local_addr()?;
        let (shared, handle) = (Arc::new(Shared::default()), Arc::new(handle));
        let accepting = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("acceptor".into())
            .spawn(move || accept(&listener, &accepting, &handle))?;
        Ok(Self {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // The listener waits for a connection: this is one.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own; there is nothing to add.
            let _ = thread.join();
        }
        for stream in locked(&self.shared.open).values() {
            // It may have been closed by the other side already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept<T: Fn(&TcpStream) + Send + Sync + 'static>(listener: &TcpListener, shared: &Arc<Shared>, handle: &Arc<T>) {
    for stream in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        if let Ok(copy) = stream.try_clone() {
            locked(&shared.open).insert(number, copy);
        }
        let (shared, handle) = (Arc::clone(shared), Arc::clone(handle));
        let conversation = move || {
            handle(&stream);
            // The copy would keep the connection open.
            locked(&shared.open).remove(&number);
        };
        if thread::Builder::new().name("raw".into()).spawn(conversation).is_err() {
            return;
        }
    }
}

/// A request, read whole.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request line and the headers, as they came.
    pub head: String,
    pub body: Vec<u8>,
}

/// What a request gets.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes; the connection stays open.
    Bytes(Vec<u8>),
    /// These bytes, and the connection is closed.
    Last(Vec<u8>),
    /// The connection is reset.
    Reset,
    /// Sends nothing until the client closes the connection.
    NoResponse,
    /// Sends `first`, then `again` repeatedly with a pause between, until the client closes the connection.
    Endless {
        first: Vec<u8>,
        again: Vec<u8>,
        pause: Duration,
    },
}

impl Reply {
    /// A whole answer; the connection stays open.
    pub fn http(status: &str, body: impl AsRef<[u8]>) -> Self {
        Self::Bytes(http_response(status, body.as_ref()))
    }

    /// A whole answer, and the connection is closed.
    pub fn http_last(status: &str, body: impl AsRef<[u8]>) -> Self {
        Self::Last(http_response(&format!("{status}\r\nConnection: close"), body.as_ref()))
    }

    /// These bytes; the connection stays open.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// These bytes, and the connection is closed.
    pub fn last(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Last(bytes.into())
    }

    /// The first bytes, then the others as fast as they are taken.
    pub fn endless(first: impl Into<Vec<u8>>, again: impl Into<Vec<u8>>) -> Self {
        Self::drip(first, again, Duration::ZERO)
    }

    /// The first bytes, then the others after a pause each.
    pub fn drip(first: impl Into<Vec<u8>>, again: impl Into<Vec<u8>>, pause: Duration) -> Self {
        let (first, again) = (first.into(), again.into());
        Self::Endless { first, again, pause }
    }
}

/// The bytes of a response. `status` may hold further header lines.
fn http_response(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

type Responder = Box<dyn FnMut(&Request) -> Reply + Send>;

struct State {
    requests: Mutex<Vec<Request>>,
    responder: Mutex<Responder>,
}

/// An HTTP server that answers what it is told, and keeps what it was asked.
pub struct RawServer {
    acceptor: Acceptor,
    origin: String,
    state: Arc<State>,
}

impl RawServer {
    /// Calls `respond` for the reply to every request.
    pub fn start(respond: impl FnMut(&Request) -> Reply + Send + 'static) -> io::Result<Self> {
        Self::start_at(ANY_FREE_PORT, respond)
    }

    /// As [`Self::start`], at an address.
    pub fn start_at(bind: &str, respond: impl FnMut(&Request) -> Reply + Send + 'static) -> io::Result<Self> {
        let state = Arc::new(State {
            requests: Mutex::default(),
            responder: Mutex::new(Box::new(respond)),
        });
        let served = Arc::clone(&state);
        let acceptor = Acceptor::start(bind, move |stream| {
            // Whoever hangs up ends its own connection, and nothing else.
            let _ = serve(stream, &served);
        })?;
        let origin = format!("http://{}", acceptor.address());
        Ok(Self {
            acceptor,
            origin,
            state,
        })
    }

    /// Answers one request after another with these replies; the last one stays.
    pub fn replying(replies: Vec<Reply>) -> io::Result<Self> {
        Self::replying_at(ANY_FREE_PORT, replies)
    }

    /// The same at an address.
    pub fn replying_at(bind: &str, replies: Vec<Reply>) -> io::Result<Self> {
        let (mut remaining, mut last) = (replies.into_iter(), Reply::NoResponse);
        Self::start_at(bind, move |_| {
            if let Some(next) = remaining.next() {
                last = next;
            }
            last.clone()
        })
    }

    /// `http://127.0.0.1:PORT`
    pub fn origin(&self) -> &str {
        &self.origin
    }

    pub fn port(&self) -> u16 {
        self.acceptor.address().port()
    }

    /// From now on.
    pub fn answer(&self, reply: Reply) {
        *locked(&self.state.responder) = Box::new(move |_| reply.clone());
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.acceptor.connections()
    }

    /// The requests that came.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.state.requests).clone()
    }

    /// Their heads.
    pub fn heads(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.head).collect()
    }
}

fn serve(mut stream: &TcpStream, state: &State) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        locked(&state.requests).push(request.clone());
        let reply = locked(&state.responder)(&request);
        match reply {
            Reply::Bytes(bytes) => stream.write_all(&bytes)?,
            Reply::Last(bytes) => return stream.write_all(&bytes),
            Reply::Reset => return socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            Reply::NoResponse => return io::copy(&mut reader, &mut io::sink()).map(drop),
            Reply::Endless { first, again, pause } => {
                stream.write_all(&first)?;
                loop {
                    stream.write_all(&again)?;
                    thread::sleep(pause);
                }
            }
        }
    }
    Ok(())
}

/// The next request; none when the other side has closed.
fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head).trim_end().to_owned();
    let mut lengths = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; lengths.next_back().unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { head, body }))
}

/// An address where nobody listens: nobody else is given it so soon.
pub fn closed_address(bind: &str) -> io::Result<SocketAddr> {
    TcpListener::bind(bind)?.local_addr()
}
