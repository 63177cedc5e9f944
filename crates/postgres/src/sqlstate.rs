//! Classifies transient errors by their SQLSTATE.
//!
//! Diesel reports most database errors by their message alone, and a server writes messages in the language of its
//! `lc_messages`. So every connection is observed below the driver: each `ErrorResponse` is parsed, and the message
//! of a transient error is stored with the class of its SQLSTATE. The server sends an error before Diesel can report
//! it, so the lookup by message finds the class that this server meant.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::{convert, io};

use diesel::ConnectionError;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls::DatabaseTls;

/// What a transient error means for its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transient {
    /// A conflict with another transaction: the whole transaction may run again at once.
    Deadlock,
    /// A lock was not available before the timeout.
    LockTimeout,
    /// The statement timed out, the server is stopping, or it has no free connection.
    Unavailable,
}

/// Messages of transient errors, in the languages of the servers seen so far.
static MESSAGES: LazyLock<RwLock<HashMap<String, Transient>>> = LazyLock::new(RwLock::default);

/// A server has one message for each of a dozen states. The bounds only stop a server that invents messages.
const MAX_MESSAGES: usize = 256;
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// Returns the class of an error by its message.
pub(crate) fn transient(message: &str) -> Option<Transient> {
    let messages = MESSAGES.read().unwrap_or_else(PoisonError::into_inner);
    messages.get(message).copied().or_else(|| by_english_message(message))
}

/// A Unix socket is not observed (see [`connect`]), so its errors are recognized only by their English messages.
fn by_english_message(message: &str) -> Option<Transient> {
    const UNAVAILABLE: &[&str] = &[
        "canceling statement due to",
        "sorry, too many clients already",
        "remaining connection slots are reserved",
        "terminating connection",
        "the database system is",
    ];
    match message {
        "deadlock detected" => Some(Transient::Deadlock),
        "canceling statement due to lock timeout" => Some(Transient::LockTimeout),
        _ if UNAVAILABLE.iter().any(|start| message.starts_with(start)) => Some(Transient::Unavailable),
        _ => None,
    }
}

fn by_sqlstate(code: &str) -> Option<Transient> {
    match code {
        "40P01" => Some(Transient::Deadlock),
        "55P03" => Some(Transient::LockTimeout),
        // query_canceled (statement_timeout), idle_in_transaction_session_timeout, too_many_connections.
        "57014" | "25P03" | "53300" => Some(Transient::Unavailable),
        // operator_intervention: shutdown, crash of another backend, start-up, idle session.
        _ if code.starts_with("57P") => Some(Transient::Unavailable),
        _ => None,
    }
}

/// Connects, and observes the errors of the connection.
pub(crate) async fn connect(config: &Config, tls: &DatabaseTls) -> Result<AsyncPgConnection, ConnectionError> {
    let mut conn = connect_in_transaction(config, tls).await?;
    conn.batch_execute("COMMIT").await.map_err(bad_connection)?;
    Ok(conn)
}

/// Connects like [`connect`], and leaves a transaction open. Diesel prepares and executes statements at the start of a
/// connection; without a transaction, a pooler could execute them on another session than the one that prepared them.
///
/// The observer is installed as the TLS connector. Without TLS it is called with the bare socket, by direct negotiation;
/// with TLS it observes the decrypted stream. A connection over a Unix socket, which has no TLS, is left to the driver.
pub(crate) async fn connect_in_transaction(
    config: &Config,
    tls: &DatabaseTls,
) -> Result<AsyncPgConnection, ConnectionError> {
    let connector = tls.connector(config).map_err(bad_connection)?;
    let is_unix = |host: &Host| matches!(host, Host::Unix(_));
    let hosts = config.get_hosts();
    let is_left_to_driver = match connector {
        Some(_) => hosts.iter().all(is_unix),
        None => hosts.iter().any(is_unix) || hosts.is_empty(),
    };
    if is_left_to_driver {
        let (client, connection) = config.connect(NoTls).await.map_err(connect_error)?;
        return begin(client, connection).await;
    }
    let mut config = config.clone();
    config.ssl_mode(SslMode::Require);
    if connector.is_none() {
        config.ssl_negotiation(SslNegotiation::Direct);
    }
    let (client, connection) = config.connect(Observe(connector)).await.map_err(connect_error)?;
    begin(client, connection).await
}

async fn begin<S>(client: Client, mut connection: Connection<Socket, S>) -> Result<AsyncPgConnection, ConnectionError>
where
    S: TlsStream + Unpin + Send + 'static,
{
    {
        // Drives the connection until the server has replied; diesel drives it afterwards.
        let mut messages = stream::poll_fn(|cx| connection.poll_message(cx));
        let mut begun = pin!(client.batch_execute("BEGIN"));
        loop {
            match select(begun.as_mut(), messages.next()).await {
                Either::Left((result, _)) => break result,
                Either::Right((Some(Ok(_)), _)) => {}
                Either::Right((Some(Err(error)), _)) => break Err(error),
                Either::Right((None, _)) => break begun.await,
            }
        }
        .map_err(connect_error)?;
    }
    AsyncPgConnection::try_from_client_and_connection(client, connection).await
}

/// Adds the cause, for example the message of the server or the reason of a failed TLS handshake.
fn connect_error(error: tokio_postgres::Error) -> ConnectionError {
    let cause = match error.as_db_error() {
        Some(database_error) => Some(database_error.message().to_owned()),
        None => std::error::Error::source(&error).map(ToString::to_string),
    };
    match cause {
        Some(cause) => bad_connection(format!("{error}: {cause}")),
        None => bad_connection(error),
    }
}

pub(crate) fn bad_connection(error: impl std::fmt::Display) -> ConnectionError {
    ConnectionError::BadConnection(error.to_string())
}

/// The connector of an observed connection, with or without TLS.
struct Observe<T>(Option<T>);

type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl MakeTlsConnect<Socket> for Observe<MakeRustlsConnect> {
    type Stream = Observed;
    type TlsConnect = Observe<<MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect>;
    type Error = convert::Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        let connector = self.0.as_mut();
        connector
            .map(|connector| MakeTlsConnect::<Socket>::make_tls_connect(connector, host))
            .transpose()
            .map(Observe)
    }
}

impl<T> TlsConnect<Socket> for Observe<T>
where
    T: TlsConnect<Socket, Stream = Encrypted> + Send + 'static,
    T::Future: Send,
{
    type Stream = Observed;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Observed, BoxError>>;

    fn connect(self, socket: Socket) -> Self::Future {
        async move {
            let stream = match self.0 {
                None => Stream::Plain(socket),
                Some(connector) => Stream::Encrypted(Box::new(connector.connect(socket).await.map_err(Into::into)?)),
            };
            let parser = ErrorParser::default();
            Ok(Observed { stream, parser })
        }
        .boxed()
    }
}

enum Stream {
    Plain(Socket),
    Encrypted(Box<Encrypted>),
}

/// A connection whose incoming messages are observed.
struct Observed {
    stream: Stream,
    parser: ErrorParser,
}

impl TlsStream for Observed {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.stream {
            Stream::Plain(_) => ChannelBinding::none(),
            Stream::Encrypted(stream) => stream.channel_binding(),
        }
    }
}

impl AsyncRead for Observed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        if let Some(bytes) = buffer.filled().get(before..) {
            self.parser.read(bytes);
        }
        polled
    }
}

impl AsyncWrite for Observed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Finds `ErrorResponse` messages in the server's byte stream. Every message is a type byte, a length that includes
/// itself, and a body.
#[derive(Default)]
struct ErrorParser {
    header: Vec<u8>,
    body_left: usize,
    /// The body of an error message, as far as it was read.
    error: Option<Vec<u8>>,
}

const HEADER: usize = 5;

impl ErrorParser {
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = if self.header.len() < HEADER {
                self.read_header(bytes)
            } else {
                self.read_body(bytes)
            };
            bytes = bytes.get(taken..).unwrap_or_default();
            if self.header.len() == HEADER && self.body_left == 0 {
                self.finish();
            }
        }
    }

    fn read_header(&mut self, bytes: &[u8]) -> usize {
        let taken = (HEADER - self.header.len()).min(bytes.len());
        self.header.extend(bytes.iter().take(taken));
        if let [kind, length @ ..] = self.header.as_slice()
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            self.body_left = length.saturating_sub(4);
            self.error = (*kind == b'E' && self.body_left <= MAX_ERROR_BYTES).then(Vec::new);
        }
        taken
    }

    fn read_body(&mut self, bytes: &[u8]) -> usize {
        let taken = self.body_left.min(bytes.len());
        if let Some(error) = &mut self.error {
            error.extend(bytes.iter().take(taken));
        }
        self.body_left -= taken;
        taken
    }

    fn finish(&mut self) {
        self.header.clear();
        if let Some(body) = self.error.take() {
            store_message(&body);
        }
    }
}

/// Stores the message of a transient error. Fields are a type byte and a text that ends with a zero.
fn store_message(body: &[u8]) {
    let field = |kind: u8| {
        let mut fields = body.split(|byte| *byte == 0);
        let found = fields.find_map(|field| field.strip_prefix(&[kind]))?;
        std::str::from_utf8(found).ok()
    };
    let (Some(code), Some(message)) = (field(b'C'), field(b'M')) else {
        return;
    };
    let Some(class) = by_sqlstate(code) else {
        return;
    };
    if MESSAGES.read().unwrap_or_else(PoisonError::into_inner).get(message) == Some(&class) {
        return;
    }
    let mut messages = MESSAGES.write().unwrap_or_else(PoisonError::into_inner);
    if messages.len() < MAX_MESSAGES {
        messages.insert(message.to_owned(), class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    fn error(code: &str, text: &str) -> Vec<u8> {
        message(b'E', format!("SFEHLER\0VERROR\0C{code}\0M{text}\0Rx\0\0").as_bytes())
    }

    #[test]
    fn parser_finds_transient_errors_however_split() {
        let stream = [
            message(b'D', &[b'E'; 700]),
            error("40P01", "Verklemmung entdeckt"),
            message(b'1', &[]),
            error("55P03", "storniere Anfrage wegen Zeitüberschreitung der Sperre"),
            error("57014", "storniere Anfrage wegen Zeitüberschreitung"),
            error("23505", "doppelter Schlüsselwert"),
            message(b'E', &vec![b'x'; MAX_ERROR_BYTES + 1]),
            error("57P03", "das Datenbanksystem startet"),
        ]
        .concat();
        for size in [1, 2, 3, 5, 7, 64, stream.len()] {
            MESSAGES.write().unwrap().clear();
            let mut parser = ErrorParser::default();
            stream.chunks(size).for_each(|chunk| parser.read(chunk));
            assert_eq!(transient("Verklemmung entdeckt"), Some(Transient::Deadlock), "{size}");
            let lock = transient("storniere Anfrage wegen Zeitüberschreitung der Sperre");
            assert_eq!(lock, Some(Transient::LockTimeout), "{size}");
            let timeout = transient("storniere Anfrage wegen Zeitüberschreitung");
            assert_eq!(timeout, Some(Transient::Unavailable), "{size}");
            assert_eq!(transient("doppelter Schlüsselwert"), None, "{size}");
            assert_eq!(
                transient("das Datenbanksystem startet"),
                Some(Transient::Unavailable),
                "{size}"
            );
        }
    }
}
