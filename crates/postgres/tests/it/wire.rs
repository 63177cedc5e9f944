//! The wire between a pool and its PostgreSQL: what is said on it, how often, and answers that are held up.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use recado_postgres::testing::TestDatabase;
use recado_postgres::{PoolConfig, TenantPool};
use secrecy::ExposeSecret;

/// A relay that a pool connects through.
pub(crate) struct Wire {
    pub(crate) tenants: TenantPool,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    executed: AtomicUsize,
    /// How often the pool spoke after having been answered.
    flushes: AtomicUsize,
    messages: Mutex<Vec<String>>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Wire {
    pub(crate) fn to(db: &TestDatabase) -> Self {
        let url = db.url().expose_secret().to_owned();
        let config: tokio_postgres::Config = url.parse().unwrap();
        let server = config.get_ports()[0];
        let relay = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = relay.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let noted = seen.clone();
        thread::spawn(move || {
            for client in relay.incoming() {
                carry(
                    client.unwrap(),
                    TcpStream::connect(("127.0.0.1", server)).unwrap(),
                    &noted,
                );
            }
        });
        let url = url.replace(&format!(":{server}/"), &format!(":{port}/"));
        let tenants = TenantPool::new(&PoolConfig::new(url.into(), 1)).unwrap();
        Self { tenants, seen }
    }

    /// How many statements with parameters passed since the last question.
    pub(crate) fn executed(&self) -> usize {
        self.seen.executed.swap(0, Ordering::SeqCst)
    }

    /// What was said since the last question: the text of what has no parameters, and by a word each what prepares, binds
    /// and executes; and how often the pool spoke after having been answered.
    pub(crate) fn said(&self) -> (Vec<String>, usize) {
        let messages = std::mem::take(&mut *self.seen.messages.lock().unwrap());
        (messages, self.seen.flushes.swap(0, Ordering::SeqCst))
    }

    /// Whether this was said since the last question.
    pub(crate) fn has_said(&self, message: &str) -> bool {
        self.seen.messages.lock().unwrap().iter().any(|said| said == message)
    }

    /// From now on no answer passes.
    pub(crate) fn hold(&self) {
        *self.seen.held.lock().unwrap() = true;
    }

    pub(crate) fn release(&self) {
        *self.seen.held.lock().unwrap() = false;
        self.seen.released.notify_all();
    }
}

fn carry(client: TcpStream, server: TcpStream, seen: &Arc<Seen>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (answers, back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let answered = Arc::new(AtomicBool::new(true));
    let (noted, told) = (seen.clone(), answered.clone());
    thread::spawn(move || {
        answer(answers, &back, &noted, &told);
        back.shutdown(Shutdown::Both).ok();
    });
    let seen = seen.clone();
    thread::spawn(move || {
        ask(client, &server, &seen, &answered);
        server.shutdown(Shutdown::Both).ok();
    });
}

fn answer(mut server: TcpStream, mut client: &TcpStream, seen: &Seen, answered: &AtomicBool) -> Option<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = server.read(&mut buffer).ok().filter(|read| *read > 0)?;
        let held = seen.held.lock().unwrap();
        drop(seen.released.wait_while(held, |held| *held).unwrap());
        answered.store(true, Ordering::SeqCst);
        client.write_all(&buffer[..read]).ok()?;
    }
}

fn ask(mut client: TcpStream, mut server: &TcpStream, seen: &Seen, answered: &AtomicBool) -> Option<()> {
    let mut buffer = vec![0; 1 << 16];
    let (mut unread, mut begun) = (Vec::new(), false);
    loop {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        if answered.swap(false, Ordering::SeqCst) {
            seen.flushes.fetch_add(1, Ordering::SeqCst);
        }
        unread.extend_from_slice(&buffer[..read]);
        while let Some(message) = next(&mut unread, begun) {
            begun = true;
            note(&message, seen);
        }
        server.write_all(&buffer[..read]).ok()?;
    }
}

/// Every message but the first is a letter, a length that counts itself, and a body.
fn next(unread: &mut Vec<u8>, begun: bool) -> Option<Vec<u8>> {
    let letter = usize::from(begun);
    let length = u32::from_be_bytes(unread.get(letter..letter + 4)?.try_into().unwrap());
    let whole = letter + usize::try_from(length).unwrap();
    if unread.len() < whole {
        return None;
    }
    let rest = unread.split_off(whole);
    let message = std::mem::replace(unread, rest);
    Some(if begun { message } else { vec![0] })
}

fn note(message: &[u8], seen: &Seen) {
    let said = match message[0] {
        b'Q' => String::from_utf8_lossy(&message[5..message.len() - 1]).into_owned(),
        b'P' => "parse".to_owned(),
        b'B' => "bind".to_owned(),
        b'E' => {
            seen.executed.fetch_add(1, Ordering::SeqCst);
            "execute".to_owned()
        }
        _ => return,
    };
    seen.messages.lock().unwrap().push(said);
}
