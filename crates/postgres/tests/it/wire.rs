//! A proxy between a pool and PostgreSQL. It records the pool's messages and flushes, and can hold responses back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use recado_postgres::testing::TestDatabase;
use recado_postgres::{PoolConfig, TenantPool};
use secrecy::ExposeSecret;

/// A recording proxy, and the pool that connects through it.
pub(crate) struct Wire {
    pub(crate) tenants: TenantPool,
    traffic: Arc<Traffic>,
}

#[derive(Default)]
struct Traffic {
    executed: AtomicUsize,
    /// How often the pool sent data after a response.
    flushes: AtomicUsize,
    messages: Mutex<Vec<String>>,
    responses_held: Mutex<bool>,
    released: Condvar,
}

impl Wire {
    pub(crate) fn to(db: &TestDatabase) -> Self {
        let url = db.url().expose_secret().to_owned();
        let config: tokio_postgres::Config = url.parse().unwrap();
        let server = config.get_ports()[0];
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let traffic = Arc::new(Traffic::default());
        let recorder = traffic.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                proxy_connection(
                    client.unwrap(),
                    TcpStream::connect(("127.0.0.1", server)).unwrap(),
                    &recorder,
                );
            }
        });
        let url = url.replace(&format!(":{server}/"), &format!(":{port}/"));
        let tenants = TenantPool::new(&PoolConfig::new(url.into(), 1)).unwrap();
        Self { tenants, traffic }
    }

    /// Returns the number of executed prepared statements since the last call.
    pub(crate) fn take_executed(&self) -> usize {
        self.traffic.executed.swap(0, Ordering::SeqCst)
    }

    /// Returns the messages and the number of flushes since the last call. A simple query is its text; the messages of
    /// the extended protocol are `parse`, `bind` and `execute`.
    pub(crate) fn take_messages(&self) -> (Vec<String>, usize) {
        let messages = std::mem::take(&mut *self.traffic.messages.lock().unwrap());
        (messages, self.traffic.flushes.swap(0, Ordering::SeqCst))
    }

    /// Whether the pool sent this message since the last [`Self::take_messages`].
    pub(crate) fn has_message(&self, message: &str) -> bool {
        let messages = self.traffic.messages.lock().unwrap();
        messages.iter().any(|recorded| recorded == message)
    }

    /// Holds all responses back until [`Self::release_responses`].
    pub(crate) fn hold_responses(&self) {
        *self.traffic.responses_held.lock().unwrap() = true;
    }

    pub(crate) fn release_responses(&self) {
        *self.traffic.responses_held.lock().unwrap() = false;
        self.traffic.released.notify_all();
    }
}

fn proxy_connection(client: TcpStream, server: TcpStream, traffic: &Arc<Traffic>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (response_source, response_target) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let responded = Arc::new(AtomicBool::new(true));
    let (response_traffic, response_flag) = (traffic.clone(), responded.clone());
    thread::spawn(move || {
        forward_responses(response_source, &response_target, &response_traffic, &response_flag);
        response_target.shutdown(Shutdown::Both).ok();
    });
    let traffic = traffic.clone();
    thread::spawn(move || {
        forward_requests(client, &server, &traffic, &responded);
        server.shutdown(Shutdown::Both).ok();
    });
}

fn forward_responses(
    mut server: TcpStream,
    mut client: &TcpStream,
    traffic: &Traffic,
    responded: &AtomicBool,
) -> Option<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = server.read(&mut buffer).ok().filter(|read| *read > 0)?;
        let held = traffic.responses_held.lock().unwrap();
        drop(traffic.released.wait_while(held, |held| *held).unwrap());
        responded.store(true, Ordering::SeqCst);
        client.write_all(&buffer[..read]).ok()?;
    }
}

fn forward_requests(
    mut client: TcpStream,
    mut server: &TcpStream,
    traffic: &Traffic,
    responded: &AtomicBool,
) -> Option<()> {
    let mut buffer = vec![0; 1 << 16];
    let (mut unread, mut startup_done) = (Vec::new(), false);
    loop {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        if responded.swap(false, Ordering::SeqCst) {
            traffic.flushes.fetch_add(1, Ordering::SeqCst);
        }
        unread.extend_from_slice(&buffer[..read]);
        while let Some(message) = next_message(&mut unread, startup_done) {
            startup_done = true;
            record_message(&message, traffic);
        }
        server.write_all(&buffer[..read]).ok()?;
    }
}

/// Takes the next complete message. A message has a type byte, a length that includes itself, and a body. The startup
/// message has no type byte.
fn next_message(unread: &mut Vec<u8>, startup_done: bool) -> Option<Vec<u8>> {
    let type_len = usize::from(startup_done);
    let length = u32::from_be_bytes(unread.get(type_len..type_len + 4)?.try_into().unwrap());
    let message_len = type_len + usize::try_from(length).unwrap();
    if unread.len() < message_len {
        return None;
    }
    let rest = unread.split_off(message_len);
    let message = std::mem::replace(unread, rest);
    Some(if startup_done { message } else { vec![0] })
}

fn record_message(message: &[u8], traffic: &Traffic) {
    let text = match message[0] {
        b'Q' => String::from_utf8_lossy(&message[5..message.len() - 1]).into_owned(),
        b'P' => "parse".to_owned(),
        b'B' => "bind".to_owned(),
        b'E' => {
            traffic.executed.fetch_add(1, Ordering::SeqCst);
            "execute".to_owned()
        }
        _ => return,
    };
    traffic.messages.lock().unwrap().push(text);
}
