//! The wire between a pool and its PostgreSQL, with a counter of the statements on it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use recado_postgres::testing::TestDatabase;
use recado_postgres::{PoolConfig, TenantPool};
use secrecy::ExposeSecret;

/// A relay that a pool connects through.
pub(crate) struct Wire {
    pub(crate) tenants: TenantPool,
    executed: Arc<AtomicUsize>,
}

impl Wire {
    pub(crate) fn to(db: &TestDatabase) -> Self {
        let url = db.url().expose_secret().to_owned();
        let config: tokio_postgres::Config = url.parse().unwrap();
        let server = config.get_ports()[0];
        let relay = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = relay.local_addr().unwrap().port();
        let executed = Arc::new(AtomicUsize::new(0));
        let counter = executed.clone();
        thread::spawn(move || {
            for client in relay.incoming() {
                carry(
                    client.unwrap(),
                    TcpStream::connect(("127.0.0.1", server)).unwrap(),
                    counter.clone(),
                );
            }
        });
        let url = url.replace(&format!(":{server}/"), &format!(":{port}/"));
        let tenants = TenantPool::new(&PoolConfig::new(url.into(), 1)).unwrap();
        Self { tenants, executed }
    }

    /// How many statements with parameters passed since the last question.
    pub(crate) fn executed(&self) -> usize {
        self.executed.swap(0, Ordering::SeqCst)
    }
}

fn carry(client: TcpStream, server: TcpStream, executed: Arc<AtomicUsize>) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || {
        std::io::copy(&mut answers, &mut back).ok();
        back.shutdown(Shutdown::Both).ok();
    });
    thread::spawn(move || {
        questions(client, &server, &executed);
        server.shutdown(Shutdown::Both).ok();
    });
}

/// Every message but the first is a letter, a length that counts itself, and a body; `E` executes.
fn questions(mut client: TcpStream, mut server: &TcpStream, executed: &AtomicUsize) -> Option<()> {
    let mut first = true;
    loop {
        let mut head = vec![0; if first { 4 } else { 5 }];
        client.read_exact(&mut head).ok()?;
        if !first && head[0] == b'E' {
            executed.fetch_add(1, Ordering::SeqCst);
        }
        let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        client.read_exact(&mut body).ok()?;
        server.write_all(&[head, body].concat()).ok()?;
        first = false;
    }
}
