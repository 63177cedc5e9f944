//! A messaging platform that speaks its half of the wire byte by byte: for answers that no proper server gives.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::{DEADLINE, eventually};

/// What comes back for a request that was read whole.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The connection is reset.
    Reset,
    /// These bytes, and the connection is closed.
    Bytes(Vec<u8>),
}

impl Answer {
    /// A whole answer with this body.
    pub fn json(status: &str, body: &str) -> Self {
        let length = body.len();
        Self::bytes(&format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
    }

    pub fn bytes(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }

    /// An acceptance.
    pub fn accepted(id: &str) -> Self {
        Self::json(
            "200 OK",
            &format!(r#"{{"messages":[{{"id":"{id}","message_status":"accepted"}}]}}"#),
        )
    }
}

/// It listens until it is dropped.
pub struct RawPlatform {
    port: u16,
    received: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RawPlatform {
    /// Answers, at this port (0: any), what the function says for a recipient.
    pub fn start(port: u16, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
        let port = listener.local_addr().unwrap().port();
        let (received, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (told, stopping) = (Arc::clone(&received), Arc::clone(&stop));
        let answer = Arc::new(answer);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, told, answer) = (stream.unwrap(), Arc::clone(&told), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &told, answer.as_ref()));
            }
        });
        Self {
            port,
            received,
            stop,
            thread: Some(thread),
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v25.0", self.port)
    }

    /// The recipient of every request, in the order of their coming.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for RawPlatform {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Whoever waits for a connection gets this last one.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut stream: TcpStream, received: &Mutex<Vec<String>>, answer: &(impl Fn(&str) -> Answer + ?Sized)) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let Some(request) = whole(&stream) else { return };
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let body: Value = serde_json::from_str(body).unwrap();
    let to = body["to"].as_str().unwrap().to_owned();
    received.lock().unwrap().push(to.clone());
    match answer(&to) {
        // What is closed with unread bytes is reset.
        Answer::Reset => drop(stream),
        Answer::Bytes(bytes) => {
            stream.read_exact(&mut vec![0; request.len()]).unwrap();
            stream.write_all(&bytes).ok();
        }
    }
}

/// A whole request, looked at and left where it is; none when the other side closes first.
fn whole(stream: &TcpStream) -> Option<String> {
    let mut seen = vec![0; 65_536];
    loop {
        let length = stream.peek(&mut seen).ok().filter(|length| *length > 0)?;
        let text = String::from_utf8_lossy(&seen[..length]).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let declared = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            if body.len() >= declared.unwrap().trim().parse::<usize>().unwrap() {
                return Some(text);
            }
        }
        // Looking returns at once while anything is there, and the rest of a request is on its way.
        std::thread::sleep(Duration::from_millis(1));
    }
}
