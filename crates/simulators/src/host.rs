//! The HTTP server that all simulators share: one thread, stopped on drop. A simulator only maps a request to a
//! response; delays, closed connections and the ledger are implemented here.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, rt, web};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control;
use crate::fault::Faults;
use crate::ledger::Ledger;

/// Maximum request body in bytes: above the largest document that WhatsApp accepts.
const MAX_BODY: usize = 128 * 1024 * 1024;

/// Idle time after which the server closes a connection. It exceeds the idle time of every client, as at the real
/// servers. Otherwise a client could reuse a connection that the server is closing.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A simulator: responds to requests and gives the host and the control routes access to its state.
pub(crate) trait Service: Send + Sync + 'static {
    /// Responds to a request of the product.
    fn respond(&self, call: &Call) -> Response;
    fn ledger(&self) -> &Ledger;
    fn faults(&self) -> &dyn Faults;
    /// The ledger as the control route returns it.
    fn ledger_json(&self) -> Value {
        json!(self.ledger().entries())
    }
    /// Handles a control route that only this simulator has.
    fn control(&self, _: &Call, _: &[&str]) -> Result<Response, Response> {
        Err(control::no_route())
    }
    /// Clears the state except ledger and faults.
    fn clear_state(&self) {}
    /// Stops the background work. The host calls it once, when it is dropped.
    fn stop(&self) {}
}

/// A request with its complete body.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: web::Bytes,
    headers: HashMap<String, String>,
}

impl Call {
    fn new(request: &HttpRequest, body: web::Bytes) -> Self {
        let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
        let headers = request.headers().iter();
        Self {
            method: request.method().to_string(),
            path: request.path().replace("%3A", ":").replace("%3a", ":"),
            query: query.map(web::Query::into_inner).unwrap_or_default(),
            body,
            headers: headers
                .map(|(name, value)| {
                    (
                        name.as_str().to_owned(),
                        String::from_utf8_lossy(value.as_bytes()).into_owned(),
                    )
                })
                .collect(),
        }
    }

    /// Header values by lower-case name.
    pub(crate) fn headers(&self) -> &HashMap<String, String> {
        &self.headers
    }

    /// Returns a header by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns a query parameter. An empty value counts as absent.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON, or null if it is not valid JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Parses the body; the error is a 400 response.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Response> {
        serde_json::from_slice(&self.body).map_err(|error| Response::refuse(400, error))
    }

    /// Returns the request with its body truncated to `bytes`.
    pub(crate) fn truncated(&self, bytes: usize) -> Self {
        let body = self.body.slice(..bytes.min(self.body.len()));
        Self { body, ..self.clone() }
    }

    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').filter(|segment| !segment.is_empty()).collect()
    }
}

/// A reply and the delay before it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) after: Duration,
    pub(crate) reply: Reply,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Send {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Sends the body byte by byte, with a pause before each.
    Drip {
        status: u16,
        body: Vec<u8>,
        pause: Duration,
    },
    /// Sends this many zero bytes as fast as the client reads.
    Flood { status: u16, bytes: u64 },
    /// Closes the connection without sending a byte.
    Close,
    /// Resets the connection (TCP RST).
    Reset,
}

impl Response {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::raw(status, body.to_string())
    }

    pub(crate) fn ok(body: &Value) -> Self {
        Self::json(200, body)
    }

    /// The response of a control route without a result.
    pub(crate) fn done() -> Self {
        Self::ok(&json!({}))
    }

    pub(crate) fn raw(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let reply = Reply::Send {
            status,
            headers: Vec::new(),
            body: body.into(),
        };
        Self {
            after: Duration::ZERO,
            reply,
        }
    }

    pub(crate) fn close() -> Self {
        Self::now(Reply::Close)
    }

    pub(crate) fn now(reply: Reply) -> Self {
        Self {
            after: Duration::ZERO,
            reply,
        }
    }

    /// The error response of a control route.
    pub(crate) fn refuse(status: u16, reason: impl std::fmt::Display) -> Self {
        Self::json(status, &json!({ "error": reason.to_string() }))
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl ToString) -> Self {
        if let Reply::Send { headers, .. } = &mut self.reply {
            headers.push((name, value.to_string()));
        }
        self
    }

    /// Changes the body if it is JSON.
    pub(crate) fn edited(mut self, change: impl FnOnce(&mut Value)) -> Self {
        if let Reply::Send { body, .. } = &mut self.reply
            && let Ok(mut value) = serde_json::from_slice(body)
        {
            change(&mut value);
            *body = value.to_string().into_bytes();
        }
        self
    }

    pub(crate) fn delayed(mut self, milliseconds: u64) -> Self {
        self.after += Duration::from_millis(milliseconds);
        self
    }

    /// The status to send. None: the connection is closed instead.
    pub(crate) fn status(&self) -> Option<u16> {
        match &self.reply {
            Reply::Send { status, .. } | Reply::Drip { status, .. } | Reply::Flood { status, .. } => Some(*status),
            Reply::Close | Reply::Reset => None,
        }
    }

    fn into_response(self, request: &HttpRequest) -> HttpResponse {
        let start =
            |status| HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
        match self.reply {
            Reply::Close => HttpResponse::Ok().body(FailingBody),
            Reply::Reset => {
                if let Some(Socket(socket)) = request.conn_data::<Socket>() {
                    // If this fails, the connection is closed instead of reset, and the test fails.
                    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
                }
                HttpResponse::Ok().body(FailingBody)
            }
            Reply::Send { status, headers, body } => {
                let mut response = start(status);
                response.content_type("application/json");
                for header in headers {
                    response.insert_header(header);
                }
                response.body(body)
            }
            Reply::Drip { status, body, pause } => start(status).body(Drip::new(body, pause)),
            Reply::Flood { status, bytes } => start(status).body(Flood(bytes)),
        }
    }
}

/// A body that fails before its first byte: the server then drops the connection without writing anything.
struct FailingBody;

impl MessageBody for FailingBody {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<web::Bytes, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
    }
}

/// A body that is sent byte by byte.
struct Drip {
    remaining: VecDeque<u8>,
    pause: Duration,
    sleep: Pin<Box<rt::time::Sleep>>,
}

impl Drip {
    fn new(body: Vec<u8>, pause: Duration) -> Self {
        Self {
            remaining: body.into(),
            pause,
            sleep: Box::pin(rt::time::sleep(pause)),
        }
    }
}

impl MessageBody for Drip {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(u64::try_from(self.remaining.len()).unwrap_or(u64::MAX))
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<web::Bytes, io::Error>>> {
        if self.sleep.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.sleep = Box::pin(rt::time::sleep(self.pause));
        let next = self.remaining.pop_front();
        Poll::Ready(next.map(|byte| Ok(web::Bytes::copy_from_slice(&[byte]))))
    }
}

/// A body of this many zero bytes, without a declared length.
struct Flood(u64);

impl MessageBody for Flood {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<web::Bytes, io::Error>>> {
        static ZEROS: [u8; 65_536] = [0; 65_536];
        let length = usize::try_from(self.0).unwrap_or(usize::MAX).min(ZEROS.len());
        self.0 -= u64::try_from(length).unwrap_or(u64::MAX).min(self.0);
        let chunk = ZEROS.get(..length).filter(|chunk| !chunk.is_empty());
        Poll::Ready(chunk.map(|chunk| Ok(web::Bytes::from_static(chunk))))
    }
}

/// A duplicate of the connection's socket, used to reset the connection.
struct Socket(OwnedFd);

/// A running server.
pub(crate) struct Host {
    address: SocketAddr,
    server: ServerHandle,
    service: Arc<dyn Service>,
    thread: Option<JoinHandle<()>>,
}

type Started = io::Result<(SocketAddr, ServerHandle)>;

impl Host {
    /// Returns when the port listens.
    pub(crate) fn start(bind: &str, service: Arc<dyn Service>) -> io::Result<Self> {
        let (started, receiver) = mpsc::channel();
        let (bind, served) = (bind.to_owned(), Arc::clone(&service));
        let thread = thread::Builder::new()
            .name("simulator".into())
            .spawn(move || run(&bind, served, &started))?;
        let ended = || Err(io::Error::other("the server thread ended before it listened"));
        let (address, server) = receiver.recv().unwrap_or_else(|_| ended())?;
        Ok(Self {
            address,
            server,
            service,
            thread: Some(thread),
        })
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.service.stop();
        // The call itself sends the stop command. The future only waits for the end, and `join` below does that.
        drop(self.server.stop(false));
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the server thread.
            let _ = thread.join();
        }
    }
}

fn run(bind: &str, service: Arc<dyn Service>, started: &mpsc::Sender<Started>) {
    rt::System::new().block_on(async {
        let app = move || {
            App::new()
                .app_data(web::PayloadConfig::new(MAX_BODY))
                .app_data(web::Data::<dyn Service>::from(Arc::clone(&service)))
                .default_service(web::to(serve))
        };
        let bound = HttpServer::new(app)
            .workers(1)
            .disable_signals()
            .keep_alive(KEEP_ALIVE)
            .on_connect(|stream, connection| {
                let stream = stream.downcast_ref::<rt::net::TcpStream>();
                if let Some(Ok(socket)) = stream.map(|stream| stream.as_fd().try_clone_to_owned()) {
                    connection.insert(Socket(socket));
                }
            })
            .shutdown_timeout(1)
            .bind(bind);
        let listening = bound.and_then(|server| {
            let address = server
                .addrs()
                .first()
                .copied()
                .ok_or_else(|| io::Error::other("no address was bound"))?;
            Ok((address, server.run()))
        });
        match listening {
            Ok((address, server)) => {
                // Fails only if `Host::start` has returned; the server then ends by a command through its handle.
                let _ = started.send(Ok((address, server.handle())));
                let _ = server.await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

async fn serve(request: HttpRequest, body: web::Bytes, service: web::Data<dyn Service>) -> HttpResponse {
    let call = Call::new(&request, body);
    let response = match call.segments().as_slice() {
        // Control routes need no key and are not recorded.
        ["_sim", route @ ..] => control::respond(&**service, &call, route),
        _ => {
            let response = service.respond(&call);
            service.ledger().record(&call, response.status());
            response
        }
    };
    if !response.after.is_zero() {
        rt::time::sleep(response.after).await;
    }
    response.into_response(&request)
}
