//! A stand-in for a bucket of S3: files in memory that outlive the server, and faults of every request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use recado_simulators::raw::{RawServer, Reply, Request};

/// What the bucket does wrong.
#[derive(Clone, Copy, Debug)]
pub enum BucketFault {
    /// It answers with 500.
    Status500,
    /// It closes the connection without a response.
    Reset,
    /// It does not answer.
    NoResponse,
    /// It does what it is asked, and closes the connection without a response.
    ResetAfterwards,
    /// It does what it is asked, one request after the other, after `SLOW` each.
    Slow,
}

const SLOW: Duration = Duration::from_millis(400);

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    fault: Option<BucketFault>,
}

/// Listens until it is dropped.
pub struct Bucket {
    server: RawServer,
    state: Arc<Mutex<State>>,
}

impl Bucket {
    pub fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let served = state.clone();
        let respond = move |request: &Request| {
            let fault = served.lock().unwrap().fault;
            if matches!(fault, Some(BucketFault::Slow)) {
                std::thread::sleep(SLOW);
            }
            served.lock().unwrap().respond(request, fault)
        };
        let server = RawServer::start(respond).unwrap();
        Self { server, state }
    }

    /// The variables of a server that stores its files here.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("MEDIA_STORE_URL", "s3://media/files".to_owned()),
            ("AWS_ENDPOINT_URL", self.server.origin().to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ]
    }

    /// Sets what every request meets from now on.
    pub fn set_fault(&self, fault: Option<BucketFault>) {
        self.state.lock().unwrap().fault = fault;
    }

    /// The keys of all files.
    pub fn files(&self) -> Vec<String> {
        self.state.lock().unwrap().files.keys().cloned().collect()
    }
}

impl State {
    fn respond(&mut self, request: &Request, fault: Option<BucketFault>) -> Reply {
        match fault {
            None | Some(BucketFault::Slow) => self.serve(request),
            Some(BucketFault::Status500) => Reply::http("500 Internal Server Error", ""),
            Some(BucketFault::Reset) => Reply::Reset,
            Some(BucketFault::NoResponse) => Reply::NoResponse,
            Some(BucketFault::ResetAfterwards) => {
                self.serve(request);
                Reply::Reset
            }
        }
    }

    fn serve(&mut self, request: &Request) -> Reply {
        let mut line = request.head.split_whitespace();
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        match method {
            "PUT" => {
                self.files.insert(path.to_owned(), request.body.clone());
                Reply::http("200 OK\r\nETag: \"1\"", "")
            }
            "GET" => match self.files.get(path) {
                Some(content) => part(content, &request.head),
                None => Reply::http("404 Not Found", ""),
            },
            "POST" => self.delete(&String::from_utf8_lossy(&request.body)),
            _ => panic!("the bucket knows no {method} {path}"),
        }
    }

    /// `DeleteObjects`: an XML document with keys.
    fn delete(&mut self, body: &str) -> Reply {
        let mut deleted = String::new();
        for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>")) {
            self.files.remove(&format!("/media/{}", key.0));
            deleted.push_str(&format!("<Deleted><Key>{}</Key></Deleted>", key.0));
        }
        let result =
            format!("<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{deleted}</DeleteResult>");
        Reply::http("200 OK\r\nContent-Type: application/xml", result)
    }
}

/// The range of the content that the head of a request asks for.
fn part(content: &[u8], head: &str) -> Reply {
    let range = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let range = value.trim().strip_prefix("bytes=")?.split_once('-')?;
        name.eq_ignore_ascii_case("range").then_some(range)
    });
    let Some((first, last)) = range else {
        return Reply::http("200 OK\r\nETag: \"1\"", content);
    };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let head = format!(
        "206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes {first}-{last}/{}",
        content.len()
    );
    Reply::http(&head, &content[first..=last])
}
