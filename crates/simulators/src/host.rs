//! The HTTP server that all simulators share: one thread, stopped on drop. A simulator only maps a request to a
//! response; delays, closed connections and the ledger are implemented here.

use std::collections::VecDeque;
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

use crate::call::{Call, Reply, Response};
use crate::control::{self, Service};

/// Maximum request body in bytes: above the largest document that WhatsApp accepts.
const MAX_BODY: usize = 128 * 1024 * 1024;

/// Idle time after which the server closes a connection. It exceeds the idle time of every client, as at the real
/// servers. Otherwise a client could reuse a connection that the server is closing.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

fn into_http(response: Response, request: &HttpRequest) -> HttpResponse {
    let start = |status| HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    match response.reply {
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
        Reply::CutOff { status, body, length } => start(status).body(CutOff {
            body: Some(body),
            length,
        }),
        Reply::Flood { status, bytes } => start(status).body(Flood(bytes)),
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

/// A body that ends before its declared length.
struct CutOff {
    body: Option<Vec<u8>>,
    length: u64,
}

impl MessageBody for CutOff {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<web::Bytes, io::Error>>> {
        let body = self.body.take().filter(|body| !body.is_empty());
        let end = || Err(io::ErrorKind::ConnectionReset.into());
        Poll::Ready(Some(body.map_or_else(end, |body| Ok(body.into()))))
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
    into_http(response, &request)
}
