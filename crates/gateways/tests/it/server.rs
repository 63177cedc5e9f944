//! A small HTTP server that answers what it is told and counts.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a request gets.
#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes; the connection stays open.
    Bytes(String),
    /// The connection is closed without a byte.
    Close,
    /// Nothing, ever.
    Silence,
    /// The first text, then the second one again and again.
    Endless(String, String),
    /// The same as `Bytes`, of what is no text.
    Raw(Vec<u8>),
}

impl Reply {
    /// A whole answer.
    pub(crate) fn http(status: &str, body: &str) -> Self {
        Self::Bytes(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }
}

#[derive(Default)]
struct State {
    replies: Vec<Reply>,
    requests: Vec<String>,
    connections: usize,
}

/// Serves until dropped.
pub(crate) struct Server {
    origin: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers one request after another with these replies; the last one stays.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        Self::start_at("127.0.0.1:0", replies).await
    }

    /// The same at another address.
    pub(crate) async fn start_at(bind: &str, replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind(bind).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            replies,
            requests: vec![],
            connections: 0,
        }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { origin, state, task }
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn port(&self) -> u16 {
        self.origin.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// From now on.
    pub(crate) fn answer(&self, reply: Reply) {
        self.state.lock().unwrap().replies = vec![reply];
    }

    /// The heads of the requests that came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    while let Some(head) = read(&mut stream).await {
        let reply = {
            let mut state = state.lock().unwrap();
            state.requests.push(head);
            if state.replies.len() > 1 {
                state.replies.remove(0)
            } else {
                state.replies[0].clone()
            }
        };
        match reply {
            Reply::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap(),
            Reply::Close => return,
            Reply::Silence => std::future::pending().await,
            // The other side has had enough at some point.
            Reply::Endless(start, again) => {
                let mut going = stream.write_all(start.as_bytes()).await.is_ok();
                while going {
                    going = stream.write_all(again.as_bytes()).await.is_ok();
                }
                return;
            }
            Reply::Raw(bytes) => stream.write_all(&bytes).await.unwrap(),
        }
    }
}

/// Reads one request, body and all, and returns its head; none when the other side has closed.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head
                .to_lowercase()
                .split_once("content-length:")
                .map_or(0, |(_, rest)| {
                    rest.split("\r\n").next().unwrap().trim().parse::<usize>().unwrap()
                });
            if bytes.len() >= end + 4 + length {
                return Some(head);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
