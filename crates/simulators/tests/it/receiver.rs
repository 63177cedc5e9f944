//! A receiver of callbacks: keeps every POST, and refuses the first few if told so.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// A POST as it came.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Post {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Receiver {
    pub(crate) url: String,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Receiver {
    /// Answers 503 to the first `refusals` POSTs, then 200.
    pub(crate) fn start(refusals: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let posts = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&posts);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept) = (stream.unwrap(), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, &kept, refusals));
            }
        });
        Self { url, posts }
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }

    /// Every status received: (message id, status), in order.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        self.changes("statuses")
    }

    /// The items under `list` of every change received.
    pub(crate) fn changes(&self, list: &str) -> Vec<Value> {
        let values = self.values().into_iter();
        values
            .filter_map(|value| value[list].as_array().cloned())
            .flatten()
            .collect()
    }

    /// The value of every change received.
    pub(crate) fn values(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for post in self.posts() {
            for entry in post.json()["entry"].as_array().unwrap() {
                for change in entry["changes"].as_array().unwrap() {
                    found.push(change["value"].clone());
                }
            }
        }
        found
    }
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Post>>, refusals: usize) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let length: usize = headers["content-length"].parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let count = {
            let mut posts = kept.lock().unwrap();
            posts.push(Post { headers, body });
            posts.len()
        };
        let status = if count > refusals {
            "200 OK"
        } else {
            "503 Service Unavailable"
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
    }
}
