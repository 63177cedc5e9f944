//! The mail server simulator: stores every mail, or refuses it, or hangs, as its `SmtpBehavior` says. It speaks plain
//! SMTP, STARTTLS, or TLS from the first byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::locked;
use crate::raw::Acceptor;

/// The TLS of the server.
#[derive(Clone, Debug, Default)]
pub enum OfferedTls {
    #[default]
    None,
    /// Offers STARTTLS.
    StartTls(Arc<ServerConfig>),
    /// TLS from the first byte.
    Implicit(Arc<ServerConfig>),
}

#[derive(Clone, Debug)]
pub struct SmtpOptions {
    /// The address to listen on.
    pub bind: String,
    /// Whether to print every mail to standard output.
    pub prints: bool,
    pub tls: OfferedTls,
}

impl Default for SmtpOptions {
    fn default() -> Self {
        Self {
            bind: "127.0.0.1:0".into(),
            prints: false,
            tls: OfferedTls::None,
        }
    }
}

/// The reaction to mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmtpBehavior {
    /// Accepts every mail.
    #[default]
    Takes,
    /// Refuses the recipient with this code.
    Refuses(u16),
    /// Refuses every user name and password.
    RefusesLogin,
    /// Never sends the greeting.
    Hangs,
    /// Stores the mail, then closes the connection before the confirmation.
    StoresThenCloses,
}

/// A received mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMail {
    /// Sender of the envelope.
    pub from: String,
    /// Recipients of the envelope.
    pub to: Vec<String>,
    /// Headers and body, with LF as line end.
    pub message: String,
    /// Whether it was sent over TLS.
    pub encrypted: bool,
}

impl ReceivedMail {
    /// The headers, unfolded: one line each.
    pub fn headers(&self) -> Vec<String> {
        let head = self.message.split("\n\n").next().unwrap_or_default();
        head.replace("\n ", " ")
            .replace("\n\t", " ")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the value of a header, not decoded.
    pub fn header(&self, name: &str) -> Option<String> {
        let matches = |line: &String| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        self.headers().iter().find_map(matches)
    }

    /// The body, decoded if it is `quoted-printable`.
    pub fn text(&self) -> String {
        let body = self.message.split_once("\n\n").map_or("", |(_, body)| body);
        match self.header("Content-Transfer-Encoding").as_deref() {
            Some("quoted-printable") => decode_quoted_printable(body),
            _ => body.to_owned(),
        }
    }
}

fn decode_quoted_printable(body: &str) -> String {
    let joined = body.replace("=\n", "");
    let mut bytes = Vec::with_capacity(joined.len());
    let mut rest = joined.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escape = (first == b'=').then(|| after.get(..2)).flatten();
        let escape = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escape {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Default)]
struct Core {
    mails: Mutex<Vec<ReceivedMail>>,
    behavior: Mutex<SmtpBehavior>,
    prints: bool,
    tls: OfferedTls,
    /// The commands before TLS, or of a connection without TLS.
    plaintext: Mutex<Vec<String>>,
}

/// The running simulator; it stops when dropped.
pub struct Smtp {
    acceptor: Acceptor,
    core: Arc<Core>,
}

impl Smtp {
    /// Returns when the port listens.
    pub fn start(options: SmtpOptions) -> io::Result<Self> {
        let core = Arc::new(Core {
            prints: options.prints,
            tls: options.tls,
            ..Core::default()
        });
        let served = Arc::clone(&core);
        let acceptor = Acceptor::start(&options.bind, move |stream| {
            // An error ends only this connection.
            let _ = serve(stream, &served);
        })?;
        Ok(Self { acceptor, core })
    }

    /// `smtp://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("smtp://{}", self.acceptor.address())
    }

    /// The stored mails, oldest first.
    pub fn mails(&self) -> Vec<ReceivedMail> {
        locked(&self.core.mails).clone()
    }

    pub fn port(&self) -> u16 {
        self.acceptor.address().port()
    }

    /// All commands that arrived without TLS, such as the credentials of a client.
    pub fn plaintext(&self) -> Vec<String> {
        locked(&self.core.plaintext).clone()
    }

    /// The number of accepted connections.
    pub fn attempts(&self) -> usize {
        self.acceptor.connections()
    }

    /// Changes the behavior from the next connection on.
    pub fn set_behavior(&self, behavior: SmtpBehavior) {
        *locked(&self.core.behavior) = behavior;
    }
}

/// How a conversation ended.
enum End {
    Closed,
    /// The client asks for TLS.
    StartTls,
}

/// Serves one connection.
fn serve(stream: &TcpStream, core: &Core) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let config = match &core.tls {
        OfferedTls::None => return converse(stream, core, false).map(|_| ()),
        OfferedTls::StartTls(config) => match converse(stream, core, false)? {
            End::Closed => return Ok(()),
            End::StartTls => config,
        },
        OfferedTls::Implicit(config) => config,
    };
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    converse(StreamOwned::new(connection, stream), core, true).map(|_| ())
}

fn converse(stream: impl Read + Write, core: &Core, encrypted: bool) -> io::Result<End> {
    let behavior = *locked(&core.behavior);
    let offers_tls = matches!(core.tls, OfferedTls::StartTls(_)) && !encrypted;
    // After STARTTLS there is no second greeting.
    let greets = !(encrypted && matches!(core.tls, OfferedTls::StartTls(_)));
    let mut lines = BufReader::new(stream);
    if behavior == SmtpBehavior::Hangs {
        lines.read_line(&mut String::new())?;
        return Ok(End::Closed);
    }
    if greets {
        reply(&mut lines, "220 simulator ESMTP")?;
    }
    let mut mail = empty(encrypted);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(End::Closed);
        }
        let line = line.trim_end();
        if !encrypted {
            locked(&core.plaintext).push(line.to_owned());
        }
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let response = match verb.as_str() {
            "EHLO" if offers_tls => "250-simulator\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 STARTTLS",
            "EHLO" => "250-simulator\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 AUTH PLAIN LOGIN",
            "STARTTLS" if offers_tls => {
                reply(&mut lines, "220 go on")?;
                return Ok(End::StartTls);
            }
            "HELO" | "NOOP" | "RSET" => "250 OK",
            "AUTH" if behavior == SmtpBehavior::RefusesLogin => "535 the login is refused",
            "AUTH" => "235 OK",
            "MAIL" => {
                mail = empty(encrypted);
                mail.from = address(line);
                "250 OK"
            }
            "RCPT" => match behavior {
                SmtpBehavior::Refuses(code) => &format!("{code} {} is refused", address(line)),
                SmtpBehavior::Takes
                | SmtpBehavior::RefusesLogin
                | SmtpBehavior::Hangs
                | SmtpBehavior::StoresThenCloses => {
                    mail.to.push(address(line));
                    "250 OK"
                }
            },
            "DATA" => {
                reply(&mut lines, "354 go on")?;
                mail.message = message(&mut lines)?;
                core.store(mail.clone());
                if behavior == SmtpBehavior::StoresThenCloses {
                    return Ok(End::Closed);
                }
                "250 OK"
            }
            "QUIT" => {
                reply(&mut lines, "221 bye")?;
                return Ok(End::Closed);
            }
            _ => "500 what?",
        };
        reply(&mut lines, response)?;
    }
}

fn reply(stream: &mut BufReader<impl Read + Write>, line: &str) -> io::Result<()> {
    let stream = stream.get_mut();
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    stream.flush()
}

impl Core {
    #[expect(
        clippy::print_stdout,
        reason = "in development, mails are read in the output of this process"
    )]
    fn store(&self, mail: ReceivedMail) {
        if self.prints {
            println!("mail from {} to {}\n{}\n", mail.from, mail.to.join(", "), mail.text());
        }
        locked(&self.mails).push(mail);
    }
}

fn empty(encrypted: bool) -> ReceivedMail {
    ReceivedMail {
        encrypted,
        from: String::new(),
        to: Vec::new(),
        message: String::new(),
    }
}

/// The address between the angle brackets.
fn address(line: &str) -> String {
    let inside = line.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>'));
    inside.map_or_else(String::new, |(address, _)| address.to_owned())
}

/// Reads the lines up to the final dot and removes the dot-stuffing.
fn message(lines: &mut impl BufRead) -> io::Result<String> {
    let mut message = String::new();
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\r', '\n']);
        if line == "." {
            return Ok(message);
        }
        message.push_str(line.strip_prefix('.').unwrap_or(line));
        message.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smtp_mail_is_stored_and_decoded() {
        let server = Smtp::start(SmtpOptions::default()).unwrap();
        let mut stream = TcpStream::connect(server.acceptor.address()).unwrap();
        let mail = "EHLO me\r\nMAIL FROM:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nDATA\r\nSubject: A\r\n B\r\n\
            Content-Transfer-Encoding: quoted-printable\r\n\r\n..one=3Dtwo=\r\n three\r\n.\r\nQUIT\r\n";
        stream.write_all(mail.as_bytes()).unwrap();
        let replies: Vec<String> = BufReader::new(&stream).lines().map(Result::unwrap).collect();
        assert!(replies.last().unwrap().starts_with("221"), "{replies:?}");
        let mails = server.mails();
        assert_eq!((mails.len(), mails[0].from.as_str()), (1, "a@x.example"));
        assert_eq!(mails[0].to, ["b@x.example"]);
        assert_eq!(mails[0].header("subject").unwrap(), "A B");
        assert_eq!(mails[0].text(), ".one=two three\n");
        assert_eq!(server.attempts(), 1);
    }
}
