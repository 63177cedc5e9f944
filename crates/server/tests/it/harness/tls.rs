//! Certificates in files, and servers that record what a client sends before and after its TLS handshake.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use recado_simulators::certificates::Identity;
use recado_simulators::raw::{ANY_FREE_PORT, Acceptor};
use recado_testkit::DEADLINE;
use tempfile::TempDir;

/// A directory of files; removed when dropped.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        Self(TempDir::with_prefix("recado-it-tls-").unwrap())
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A server that records what its clients send.
pub struct Recorder {
    acceptor: Acceptor,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// A PostgreSQL server without TLS: refuses an `SSLRequest`, then records everything. It never responds to a login.
    pub fn without_tls() -> Self {
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let record = received.clone();
        let acceptor = Acceptor::start(ANY_FREE_PORT, move |mut stream| {
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                record.lock().unwrap().extend_from_slice(&buffer[..read]);
                if read == 8 && stream.write_all(b"N").is_err() {
                    return;
                }
            }
        });
        let acceptor = acceptor.unwrap();
        Self { acceptor, received }
    }

    /// A TLS server with this certificate, after PostgreSQL's negotiation if `is_postgres`. Records what arrives
    /// decrypted, and sends `response` once.
    pub fn with_tls(identity: &Identity, is_postgres: bool, response: &'static str) -> Self {
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let (record, config) = (received.clone(), identity.server_config().unwrap());
        let acceptor = Acceptor::start(ANY_FREE_PORT, move |mut stream| {
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            if is_postgres && (stream.read_exact(&mut [0; 8]).is_err() || stream.write_all(b"S").is_err()) {
                return;
            }
            let mut connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            let mut buffer = [0; 4096];
            // A client that does not trust the certificate ends the handshake.
            while let Ok(read @ 1..) = tls.read(&mut buffer) {
                record.lock().unwrap().extend_from_slice(&buffer[..read]);
                if tls.write_all(response.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let acceptor = acceptor.unwrap();
        Self { acceptor, received }
    }

    pub fn port(&self) -> u16 {
        self.acceptor.address().port()
    }

    pub fn connections(&self) -> usize {
        self.acceptor.connections()
    }

    pub fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }
}
