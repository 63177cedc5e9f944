//! Test harness: a database per test, simulators of WhatsApp and the payment gateway, the real binary, and clients
//! that call it.

pub mod admin;
pub mod bucket;
pub mod client;
pub mod cluster;
pub mod database;
pub mod media;
pub mod numbers;
pub mod process;
pub mod raw_whatsapp;
pub mod reference;
pub mod rng;
pub mod runs;
pub mod scrape;
pub mod stream;
pub mod tls;
pub mod users;
pub mod wait;
pub mod webhook_events;

use std::cell::RefCell;
use std::path::Path;

use recado_simulators::payment::{self, PaymentSimulator};
use recado_simulators::whatsapp::{self, Whatsapp};
use recado_testkit::services::ReservedPort;
use serde_json::{Value, json};
use uuid::Uuid;

use client::{Reply, Request};
use database::Database;
use media::MediaDirectory;
use process::{BINARY, Process};
use users::{User, token};
pub use wait::{DEADLINE, assert_within_a_second, eventually, shortest, until};

/// Signs WhatsApp callbacks.
pub const WHATSAPP_APP_SECRET: &str = "app-secret";

/// The verify token of WhatsApp's callback handshake.
pub const VERIFY_TOKEN: &str = "verify-me";

/// Authenticates callbacks of the payment gateway.
pub const GATEWAY_TOKEN: &str = "gateway-webhook-token";

/// How a server is started.
#[derive(Default)]
pub struct Options {
    /// Variables on top of `process::environment`. An empty value unsets the variable.
    pub env: Vec<(&'static str, String)>,
    /// Command line arguments; `serve` if empty.
    pub args: Vec<&'static str>,
    pub whatsapp: whatsapp::WhatsappOptions,
    pub payment: payment::PaymentOptions,
}

impl Options {
    /// Adds an environment variable.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// The server also serves metrics, at `Server::metrics_port`.
    pub fn with_metrics(self) -> Self {
        self.with("METRICS_BIND", "127.0.0.1:0")
    }

    /// Default options with a changed WhatsApp simulator.
    pub fn with_whatsapp(change: impl FnOnce(&mut whatsapp::WhatsappOptions)) -> Self {
        let mut options = Self::default();
        change(&mut options.whatsapp);
        options
    }
}

/// A running server and everything that it needs. Fields drop in order: the processes end before the database drops.
pub struct Server {
    processes: RefCell<Vec<Process>>,
    port: ReservedPort,
    pub whatsapp: Whatsapp,
    pub payment: PaymentSimulator,
    pub db: Database,
    /// The directory in which the server stores uploaded files.
    pub media: MediaDirectory,
    env: Vec<(&'static str, String)>,
}

impl Server {
    /// Starts a server with the default options.
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

    /// Creates the database, simulators and directories, but starts no process.
    pub fn prepare(options: &Options) -> Self {
        Self::prepare_on(Database::new(), options)
    }

    /// Starts the server on an existing database and waits until it is ready.
    pub fn start_on(db: Database, options: &Options) -> Self {
        let server = Self::prepare_on(db, options);
        server.run(&["serve"]);
        server
    }

    /// Creates simulators and directories for an existing database, but starts no process.
    pub fn prepare_on(db: Database, options: &Options) -> Self {
        let port = ReservedPort::new().unwrap();
        let address = port.address();
        let whatsapp = Whatsapp::start(whatsapp::WhatsappOptions {
            callback_url: Some(format!("http://{address}/api/whatsapp/webhook")),
            app_secret: WHATSAPP_APP_SECRET.into(),
            ..options.whatsapp.clone()
        })
        .unwrap();
        let payment = PaymentSimulator::start(payment::PaymentOptions {
            webhook_url: Some(format!("http://{address}/api/billing/webhook")),
            webhook_token: GATEWAY_TOKEN.into(),
            ..options.payment.clone()
        })
        .unwrap();
        let media = MediaDirectory::new();
        let mut env = process::environment(&db.url(), &whatsapp.base_url());
        env.push(("PUBLIC_URL", format!("http://{address}")));
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

    /// Runs the binary at this server's address. Waits for readiness if it serves.
    pub fn run(&self, arguments: &[&str]) {
        let process = self.spawn_with(arguments, &[self.bind()]);
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

    /// Waits until a server at this port is ready.
    pub fn wait_ready_at(&self, port: u16) {
        until("the server is ready", || {
            let reply = Request::new(port, "GET", "/readyz").try_send();
            reply.is_ok_and(|reply| reply.status == 200)
        });
    }

    /// The address of this server. Its processes follow each other at one port, so that the simulators find them.
    pub fn bind(&self) -> (&'static str, String) {
        ("BIND", self.port.address())
    }

    /// Runs the binary with the same environment at a port that the system chooses.
    pub fn spawn(&self, arguments: &[&str]) -> Process {
        self.spawn_with(arguments, &[])
    }

    /// Runs the binary at this server's address with these variables on top, and waits until it is ready.
    pub fn serve_with(&self, changes: &[(&'static str, String)]) {
        let changes = [changes, &[self.bind()]].concat();
        let process = self.spawn_with(&["serve"], &changes);
        self.processes.borrow_mut().push(process);
        self.wait_ready();
    }

    /// Like `spawn`, with these variables on top.
    pub fn spawn_with(&self, arguments: &[&str], changes: &[(&'static str, String)]) -> Process {
        self.spawn_program(Path::new(BINARY), arguments, changes)
    }

    /// Like `spawn_with`, with another version of the binary.
    pub fn spawn_program(&self, program: &Path, arguments: &[&str], changes: &[(&'static str, String)]) -> Process {
        Process::start_program(program, arguments, &[&self.env[..], changes].concat())
    }

    /// Starts a second server on the same database, simulators and rate limiter.
    pub fn sibling(&self) -> Sibling {
        self.sibling_with_args(&["serve"])
    }

    /// Starts a second server with these arguments.
    pub fn sibling_with_args(&self, arguments: &[&str]) -> Sibling {
        let process = self.spawn(arguments);
        let sibling = Sibling {
            port: process.port(),
            _process: process,
        };
        self.wait_ready_at(sibling.port);
        sibling
    }

    /// Kills the processes with SIGKILL.
    pub fn kill(&self) {
        for mut process in self.processes.borrow_mut().drain(..) {
            process.kill();
        }
    }

    /// Sends SIGTERM, waits and returns the exit code of the last process.
    pub fn stop(&self) -> Option<i32> {
        let mut processes = self.processes.borrow_mut();
        let codes: Vec<_> = processes.drain(..).map(|mut process| process.stop()).collect();
        codes.last().copied().flatten()
    }

    /// Sends SIGTERM and does not wait.
    pub fn terminate(&self) {
        for process in self.processes.borrow().iter() {
            process.terminate();
        }
    }

    /// Waits for terminated processes and returns the exit code of the last one.
    pub fn wait(&self) -> Option<i32> {
        let mut processes = self.processes.borrow_mut();
        let codes: Vec<_> = processes.drain(..).map(|mut process| process.wait()).collect();
        codes.last().copied().flatten()
    }

    /// The log output of all processes. Log lines are written asynchronously but in order: once the line of a probe
    /// request is there, all earlier lines are, too.
    pub fn log(&self) -> String {
        let read = || -> String { self.processes.borrow().iter().map(Process::log).collect() };
        let id = Uuid::now_v7().to_string();
        let probe = self.request("GET", "/the-log-so-far").header("X-Request-Id", &id);
        if probe.try_send().is_ok() {
            until("the log is written", || read().contains(&id));
        }
        read()
    }

    /// Resident memory of the latest process, in bytes.
    pub fn memory(&self) -> u64 {
        self.processes.borrow().last().unwrap().memory()
    }

    /// Resets the peak memory of the latest process and returns its current value, in bytes.
    pub fn reset_peak_memory(&self) -> u64 {
        let id = self.processes.borrow().last().unwrap().id();
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").unwrap();
        self.peak_memory()
    }

    /// Peak memory of the latest process, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.processes.borrow().last().unwrap().peak_memory()
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port of the metrics of the latest process. `METRICS_BIND` MUST be set.
    pub fn metrics_port(&self) -> u16 {
        self.processes.borrow().last().unwrap().metrics_port()
    }

    /// The environment of the processes, which listen at a port that the system chooses.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.env.clone()
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.port(), method, path)
    }

    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }

    /// A new user without an account.
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

    /// A new user who owns a new account.
    pub fn owner(&self) -> User<'_> {
        let mut user = self.stranger();
        let made = user.post("/api/accounts", json!({ "name": "Loja" })).created();
        user.account = text(&made["account"]["id"]);
        user
    }

    /// A new user with this role in an existing account.
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

    /// Posts a callback as the payment gateway does.
    pub fn gateway_event(&self, body: &Value) -> Reply {
        self.gateway_request(body).send()
    }

    /// Builds the request of `gateway_event`.
    pub fn gateway_request(&self, body: &Value) -> Request {
        let request = self.post("/api/billing/webhook").json(body);
        request.header("gateway-access-token", GATEWAY_TOKEN)
    }

    /// Posts a signed callback as WhatsApp does.
    pub fn callback(&self, body: &Value) -> Reply {
        self.callback_request(body).send()
    }

    /// Builds the request of `callback`.
    pub fn callback_request(&self, body: &Value) -> Request {
        let body = body.to_string();
        let signature = whatsapp::signature(WHATSAPP_APP_SECRET, body.as_bytes());
        self.post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signature)
            .body("application/json", body)
    }
}

/// A second server on the same database; killed when dropped.
pub struct Sibling {
    port: u16,
    _process: Process,
}

impl Sibling {
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.port, method, path)
    }
}

/// The content of a JSON string; panics for other values.
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a JSON string: {value}"))
        .to_owned()
}
