//! Servers that send any bytes that a test chooses, for responses that no proper server sends.

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

/// Passes every connection to a function, each on its own thread. Closes the connections and the port when dropped.
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

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // A connection wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
        for stream in locked(&self.shared.open).values() {
            // The client may have closed it already.
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

/// A request with its complete body.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request line and the headers, unchanged.
    pub head: String,
    pub body: Vec<u8>,
}

/// The reply to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Sends these bytes. The connection stays open.
    Bytes(Vec<u8>),
    /// Sends these bytes, then closes the connection.
    Last(Vec<u8>),
    /// Resets the connection (TCP RST).
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
    /// A complete response. The connection stays open.
    pub fn http(status: &str, body: impl AsRef<[u8]>) -> Self {
        Self::Bytes(http_response(status, body.as_ref()))
    }

    /// A complete response. The connection is then closed.
    pub fn http_last(status: &str, body: impl AsRef<[u8]>) -> Self {
        Self::Last(http_response(&format!("{status}\r\nConnection: close"), body.as_ref()))
    }

    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(bytes.into())
    }

    pub fn last(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Last(bytes.into())
    }

    /// Sends `first`, then `again` repeatedly as fast as the client reads.
    pub fn endless(first: impl Into<Vec<u8>>, again: impl Into<Vec<u8>>) -> Self {
        Self::drip(first, again, Duration::ZERO)
    }

    /// Sends `first`, then `again` repeatedly with a pause between.
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

/// An HTTP server that sends the replies that a test chooses and records the requests.
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
            // An error ends only this connection.
            let _ = serve(stream, &served);
        })?;
        let origin = format!("http://{}", acceptor.address());
        Ok(Self {
            acceptor,
            origin,
            state,
        })
    }

    /// Sends these replies in order, then repeats the last one.
    pub fn replying(replies: Vec<Reply>) -> io::Result<Self> {
        Self::replying_at(ANY_FREE_PORT, replies)
    }

    /// As [`Self::replying`], at an address.
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

    /// Sends this reply to every further request.
    pub fn answer(&self, reply: Reply) {
        *locked(&self.state.responder) = Box::new(move |_| reply.clone());
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.acceptor.connections()
    }

    /// The received requests, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.state.requests).clone()
    }

    /// Request line and headers of the received requests.
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

/// Reads the next request. None: the client closed the connection.
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

/// An address at which no process listens. The system does not assign a released port again so soon.
pub fn closed_address(bind: &str) -> io::Result<SocketAddr> {
    TcpListener::bind(bind)?.local_addr()
}
