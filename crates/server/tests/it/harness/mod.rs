//! What every test stands on: a database of its own, the messaging platform's simulator, the real binary, and people
//! who call it.

pub mod admin;
pub mod client;
pub mod cluster;
pub mod database;
pub mod figures;
pub mod media;
pub mod platform;
pub mod process;
pub mod reference;
pub mod rng;
pub mod runs;
pub mod stream;
pub mod users;
pub mod wait;

use std::cell::RefCell;

use recado_simulators::payment::{self, PaymentSimulator};
use recado_simulators::whatsapp::{self, Whatsapp};
use serde_json::{Value, json};
use uuid::Uuid;

use client::{Reply, Request};
use database::Database;
use media::MediaDirectory;
use process::{Process, free_port};
use users::{User, token};
pub use wait::{DEADLINE, eventually, shortest, until};

/// The secret that signs the platform's callbacks.
pub const WHATSAPP_APP_SECRET: &str = "app-secret";

/// The token of the callback's handshake.
pub const VERIFY_TOKEN: &str = "verify-me";

/// The token of the payment gateway's callback.
pub const GATEWAY_TOKEN: &str = "gateway-webhook-token";

/// How a server is started.
#[derive(Default)]
pub struct Options {
    /// Variables beside the usual ones; an empty value unsets.
    pub env: Vec<(&'static str, String)>,
    /// Arguments; none: `serve`.
    pub args: Vec<&'static str>,
    /// The platform.
    pub whatsapp: whatsapp::WhatsappOptions,
    /// The payment gateway.
    pub payment: payment::PaymentOptions,
}

impl Options {
    /// With one variable more.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Default options with a changed WhatsApp simulator.
    pub fn with_whatsapp(change: impl FnOnce(&mut whatsapp::WhatsappOptions)) -> Self {
        let mut options = Self::default();
        change(&mut options.whatsapp);
        options
    }
}

/// A running server with everything it needs. Dropped in the order of its fields: the process before the database.
pub struct Server {
    processes: RefCell<Vec<Process>>,
    port: u16,
    /// The platform it calls.
    pub whatsapp: Whatsapp,
    /// The payment gateway it calls.
    pub payment: PaymentSimulator,
    /// Its database.
    pub db: Database,
    /// Where it keeps uploaded files.
    pub media: MediaDirectory,
    env: Vec<(&'static str, String)>,
}

impl Server {
    /// With the defaults.
    pub fn new() -> Self {
        Self::start(Options::default())
    }

    /// Starts the server and waits until it is ready.
    pub fn start(options: Options) -> Self {
        let server = Self::prepare(&options);
        let arguments = if options.args.is_empty() {
            vec!["serve"]
        } else {
            options.args
        };
        server.run(&arguments);
        server
    }

    /// Everything but the process.
    pub fn prepare(options: &Options) -> Self {
        Self::prepare_on(Database::new(), options)
    }

    /// Starts the server on this database and waits until it is ready.
    pub fn start_on(db: Database, options: &Options) -> Self {
        let server = Self::prepare_on(db, options);
        server.run(&["serve"]);
        server
    }

    fn prepare_on(db: Database, options: &Options) -> Self {
        let port = free_port();
        let whatsapp = Whatsapp::start(whatsapp::WhatsappOptions {
            callback_url: Some(format!("http://127.0.0.1:{port}/api/whatsapp/webhook")),
            app_secret: WHATSAPP_APP_SECRET.into(),
            ..options.whatsapp.clone()
        })
        .unwrap();
        let payment = PaymentSimulator::start(payment::PaymentOptions {
            webhook_url: Some(format!("http://127.0.0.1:{port}/api/billing/webhook")),
            webhook_token: GATEWAY_TOKEN.into(),
            ..options.payment.clone()
        })
        .unwrap();
        let media = MediaDirectory::new();
        let mut env = process::environment(&db.url(), &whatsapp.base_url());
        env.push(("MEDIA_STORE_URL", format!("file://{}", media.path().display())));
        env.push(("PAYMENT_GATEWAY_URL", payment.base_url()));
        env.push(("PAYMENT_GATEWAY_API_KEY", payment::PaymentOptions::default().api_key));
        env.push(("PAYMENT_GATEWAY_WEBHOOK_TOKEN", GATEWAY_TOKEN.to_owned()));
        env.extend(options.env.iter().cloned());
        Self {
            processes: RefCell::default(),
            port,
            whatsapp,
            payment,
            db,
            media,
            env,
        }
    }

    /// Runs the binary at this server's address and waits until it is ready.
    pub fn run(&self, arguments: &[&str]) {
        let process = self.spawn(arguments, self.port);
        self.processes.borrow_mut().push(process);
        if arguments.first() == Some(&"serve") {
            self.wait_ready();
        }
    }

    fn wait_ready(&self) {
        until("the server is ready", || {
            let running = self.processes.borrow_mut().last_mut().is_some_and(Process::is_running);
            assert!(running, "the server ended: {}", self.log());
            self.get("/readyz").try_send().is_ok_and(|reply| reply.status == 200)
        });
    }

    /// Runs the binary at another address, with the same environment.
    pub fn spawn(&self, arguments: &[&str], port: u16) -> Process {
        let bind = format!("127.0.0.1:{port}");
        let mut env = self.env.clone();
        env.push(("BIND", bind.clone()));
        env.push(("PUBLIC_URL", format!("http://{bind}")));
        Process::start(arguments, &env)
    }

    /// A second server on the same database, platform and counters.
    pub fn sibling(&self) -> Sibling {
        self.sibling_with_args(&["serve"])
    }

    /// Starts a second server with these arguments.
    pub fn sibling_with_args(&self, arguments: &[&str]) -> Sibling {
        let port = free_port();
        let sibling = Sibling {
            port,
            _process: self.spawn(arguments, port),
        };
        until("the second server is ready", || {
            let reply = Request::new(port, "GET", "/readyz").try_send();
            reply.is_ok_and(|reply| reply.status == 200)
        });
        sibling
    }

    /// Ends the process at once, as `kill -9` does.
    pub fn kill(&self) {
        for mut process in self.processes.borrow_mut().drain(..) {
            process.kill();
        }
    }

    /// Asks the process to end, and waits for its code.
    pub fn stop(&self) -> Option<i32> {
        let mut processes = self.processes.borrow_mut();
        let codes: Vec<_> = processes.drain(..).map(|mut process| process.stop()).collect();
        codes.last().copied().flatten()
    }

    /// Asks the process to end, and does not wait.
    pub fn terminate(&self) {
        for process in self.processes.borrow().iter() {
            process.terminate();
        }
    }

    /// Waits for the code of a process that was asked to end.
    pub fn wait(&self) -> Option<i32> {
        let mut processes = self.processes.borrow_mut();
        let codes: Vec<_> = processes.drain(..).map(|mut process| process.wait()).collect();
        codes.last().copied().flatten()
    }

    /// What the processes wrote. Lines are written a moment after what they tell of, in their order: a request that is seen
    /// there says that all before it is.
    pub fn log(&self) -> String {
        let read = || -> String { self.processes.borrow().iter().map(Process::log).collect() };
        let id = Uuid::now_v7().to_string();
        let probe = self.request("GET", "/the-log-so-far").header("X-Request-Id", &id);
        if probe.try_send().is_ok() {
            until("the log is written", || read().contains(&id));
        }
        read()
    }

    /// The resident memory of its process, in bytes.
    pub fn memory(&self) -> u64 {
        self.processes.borrow().last().unwrap().memory()
    }

    /// Resets the peak memory of the latest process and returns its current value, in bytes.
    pub fn reset_peak_memory(&self) -> u64 {
        let id = self.processes.borrow().last().unwrap().id();
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").unwrap();
        self.peak_memory()
    }

    /// The most memory that its process ever used, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.processes.borrow().last().unwrap().peak_memory()
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What its processes are told, but for the address.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.env.clone()
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.port, method, path)
    }

    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }

    /// Somebody new, without an account.
    pub fn stranger(&self) -> User<'_> {
        let id = Uuid::new_v4();
        let email = format!("{}@example.com", id.simple());
        User {
            server: self,
            id,
            token: token(id, &email),
            email,
            account: String::new(),
        }
    }

    /// Somebody new with an account of their own.
    pub fn owner(&self) -> User<'_> {
        let mut user = self.stranger();
        let made = user.post("/api/accounts", json!({ "name": "Loja" })).created();
        user.account = text(&made["account"]["id"]);
        user
    }

    /// Somebody new with a role in an account.
    pub fn member(&self, account: &str, role: &str) -> User<'_> {
        let user = self.stranger();
        let (id, email) = (user.id, &user.email);
        self.db.run(&format!(
            "INSERT INTO users (id, email) VALUES ('{id}', '{email}');
             INSERT INTO account_users (account_id, user_id, role) VALUES ('{account}', '{id}', '{role}')"
        ));
        User {
            account: account.to_owned(),
            ..user
        }
    }

    /// Posts an event as the payment gateway does.
    pub fn gateway_event(&self, body: &Value) -> Reply {
        self.gateway_request(body).send()
    }

    /// The same, not sent yet.
    pub fn gateway_request(&self, body: &Value) -> Request {
        let request = self.post("/api/billing/webhook").json(body);
        request.header("gateway-access-token", GATEWAY_TOKEN)
    }

    /// Posts a callback as the platform does.
    pub fn callback(&self, body: &Value) -> Reply {
        self.callback_request(body).send()
    }

    /// The same, not sent yet.
    pub fn callback_request(&self, body: &Value) -> Request {
        let body = body.to_string();
        let signature = whatsapp::signature(WHATSAPP_APP_SECRET, body.as_bytes());
        self.post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signature)
            .body("application/json", body)
    }
}

/// A second server.
pub struct Sibling {
    port: u16,
    /// Killed when dropped.
    _process: Process,
}

impl Sibling {
    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.port, method, path)
    }
}

/// A JSON string.
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a JSON string: {value}"))
        .to_owned()
}
