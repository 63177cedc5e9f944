//! The commands that call the API with a key: `send`, `import`, `listen` and `tail`; help, version and completion.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;

use recado_simulators::raw::{RawServer, Reply};
use recado_simulators::receiver::{Receiver, ReceiverOptions};
use recado_testkit::services::ReservedPort;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::api_keys::create_key;
use crate::harness::process::{Process, command};
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text, until};

type Env = Vec<(&'static str, String)>;

/// The address of the user's server and a new key of the account.
fn environment(user: &User<'_>) -> Env {
    vec![
        ("RECADO_URL", format!("http://127.0.0.1:{}", user.server.port())),
        ("RECADO_API_KEY", create_key(user)),
    ]
}

fn run(arguments: &[&str], env: &Env) -> Output {
    command(arguments, env).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn json_of(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts the exit code and that the error names this.
#[track_caller]
fn fails(output: &Output, code: i32, problem: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(error.contains(problem), "{error}");
}

#[test]
fn help_version_and_completion_need_no_configuration() {
    let none = Env::new();
    let help = stdout(&run(&["--help"], &none));
    for name in [
        "serve",
        "doctor",
        "send",
        "import",
        "listen",
        "tail",
        "completion",
        "Exit codes",
    ] {
        assert!(help.contains(name), "{name}: {help}");
    }
    let version = stdout(&run(&["--version"], &none));
    let document: Value = serde_json::from_slice(&run(&["openapi"], &none).stdout).unwrap();
    assert_eq!(version.trim(), format!("recado {}", text(&document["info"]["version"])));
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef recado"),
        ("fish", "complete -c recado"),
    ] {
        let script = stdout(&run(&["completion", shell], &none));
        assert!(script.contains(mark) && script.contains("tail"), "{shell}: {script}");
    }
}

#[test]
fn wrong_usage_exits_with_two_before_a_request() {
    let key = |url: &str| {
        vec![
            ("RECADO_URL", url.to_owned()),
            ("RECADO_API_KEY", "svc_live_sk_x".to_owned()),
        ]
    };
    let send = ["send", "--to", "+5511961234567", "--text", "Oi"];
    fails(&run(&send, &Env::new()), 2, "RECADO_API_KEY");
    fails(&run(&send, &key("http://203.0.113.7")), 2, "https://");
    let mut broken = key("http://127.0.0.1:1");
    broken.push(("RECADO_WEBHOOK_SECRET", "hunter2".to_owned()));
    fails(&run(&["listen", "3000"], &broken), 2, "RECADO_WEBHOOK_SECRET");
    broken.push(("RECADO_API_KEY", "svc_live_sk_x\n".to_owned()));
    fails(&run(&send, &broken), 2, "line break");
    let local = key("http://127.0.0.1:1");
    for (arguments, problem) in [
        (&["send", "--text", "Oi"][..], "--to"),
        (&["send", "--to", "+5511961234567"], "--template"),
        (
            &["send", "--to", "1", "--contact", "2", "--text", "Oi"],
            "cannot be used with",
        ),
        (
            &["send", "--to", "1", "--template", "a", "--language", "b", "--var", "1"],
            "PLACEHOLDER=VALUE",
        ),
        (&["import", "/nowhere/contacts.csv"], "/nowhere/contacts.csv"),
        (&["listen", "https://example.com/hooks"], "on this machine"),
        (&["tail", "mine"], "CAMPAIGN"),
        (
            &["send", "--to", "1", "--text", "Oi", "--language", "pt_BR"],
            "cannot be used with",
        ),
        (
            &[
                "send",
                "--to",
                "1",
                "--template",
                "a",
                "--language",
                "b",
                "--var",
                "1=a",
                "--var",
                "1=b",
            ],
            "--var 1 is given twice",
        ),
        (
            &["send", "--to", "1", "--text", "Oi", "--wait", "18446744073709551615"],
            "--wait",
        ),
        (&["import", "/tmp"], "not a regular file"),
        (&["listen", "localhost:3000"], "must be a port or an address"),
    ] {
        fails(&run(arguments, &local), 2, problem);
    }
}

#[test]
fn unreachable_server_exits_with_three() {
    let port = ReservedPort::new().unwrap();
    let env = vec![
        ("RECADO_URL", format!("http://{}", port.address())),
        ("RECADO_API_KEY", "svc_live_sk_x".to_owned()),
    ];
    let output = run(&["send", "--to", "+5511961234567", "--text", "Oi"], &env);
    fails(&output, 3, "not reachable");
}

/// Creates a template, waits for its approval, and returns its name.
fn approved_template(user: &User<'_>, body: &str, examples: &[&str]) -> String {
    let id = user.approved(body, examples);
    text(&user.get(&format!("/api/templates/{id}")).ok()["name"])
}

#[test]
fn send_delivers_one_message_for_a_reference() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let name = approved_template(&ana, "Oi {{1}}, pedido {{2}}.", &["Ana", "1042"]);
    let env = environment(&ana);
    let arguments = [
        "send",
        "--to",
        "+5511961234567",
        "--template",
        &name,
        "--language",
        "pt_BR",
        "--var",
        "1=Bia",
        "--var",
        "2=77",
        "--reference",
        "order-77",
        "--wait",
    ];
    let first = json_of(&run(&arguments, &env), 0);
    assert_ne!(first["status"], "pending");
    let again = json_of(&run(&arguments, &env), 0);
    assert_eq!(first["id"], again["id"]);
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].parameters, ["Bia", "77"]);
    // Without a reference, two calls are two messages.
    let unnamed = &arguments[..arguments.len() - 3];
    let ids = [0; 2].map(|_| text(&json_of(&run(unnamed, &env), 0)["id"]));
    assert_ne!(ids[0], ids[1]);

    let changed = [&arguments[..], &["--profile", "0190a1b2-c3d4-7e5f-8a9b-000000000001"]].concat();
    fails(&run(&changed, &env), 1, "409 CONFLICT");
    fails(
        &run(&["send", "--to", "+5511961234567", "--text", "Oi"], &env),
        1,
        "outside_window",
    );
    let mut wrong_key = env.clone();
    wrong_key.push(("RECADO_API_KEY", "svc_live_sk_0000".to_owned()));
    fails(&run(&arguments, &wrong_key), 1, "AUTH_ERROR");
}

/// A proxy that loses the response to the first request.
fn losing_proxy(server: &Server) -> RawServer {
    let (address, mut requests) = (format!("127.0.0.1:{}", server.port()), 0);
    RawServer::start(move |request| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .write_all(format!("{}\r\nConnection: close\r\n\r\n", request.head).as_bytes())
            .unwrap();
        stream.write_all(&request.body).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        requests += 1;
        match requests {
            1 => Reply::Reset,
            _ => Reply::Last(response),
        }
    })
    .unwrap()
}

#[test]
fn message_whose_response_is_lost_is_sent_once() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let name = approved_template(&ana, "Oi", &[]);
    // A key that may not read messages gets its own again.
    let key = ana.post("/api/api-keys", json!({ "name": "CI", "scopes": ["messages:write"] }));
    let proxy = losing_proxy(&server);
    let env = vec![
        ("RECADO_URL", proxy.origin().to_owned()),
        ("RECADO_API_KEY", text(&key.created()["full_key"])),
    ];
    let arguments = [
        "send",
        "--to",
        "+5511961234567",
        "--template",
        &name,
        "--language",
        "pt_BR",
    ];
    let output = run(&arguments, &env);
    let message = json_of(&output, 0);
    assert_eq!(proxy.connections(), 2);
    let reference = text(&message["client_reference"]);
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains(&format!("reference: {reference}"))
    );
    until("the message is sent", || server.whatsapp.sends().len() == 1);
    assert_eq!(ana.get("/api/messages").ok()["data"].as_array().unwrap().len(), 1);
    // It may not wait: it cannot read the status.
    fails(&run(&[&arguments[..], &["--wait"]].concat(), &env), 4, "cannot be read");
}

#[test]
fn client_commands_read_no_dotenv_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join(".env"),
        "RECADO_URL=http://127.0.0.1:2\nbroken line",
    )
    .unwrap();
    let run = |arguments: &[&str], key: &str| {
        let env = vec![
            ("RECADO_URL", "http://127.0.0.1:1".to_owned()),
            ("RECADO_API_KEY", key.to_owned()),
        ];
        command(arguments, &env).current_dir(directory.path()).output().unwrap()
    };
    fails(&run(&["send", "--to", "1", "--text", "Oi"], ""), 2, "RECADO_API_KEY");
    assert_eq!(run(&["--version"], "").status.code(), Some(0));
    fails(&run(&["health"], ""), 1, ".env");
}

#[test]
fn import_prints_the_report_and_watch_shows_progress() {
    let server = Server::new();
    let ana = server.owner();
    let env = environment(&ana);
    let mut file = NamedTempFile::new().unwrap();
    let rows: String = (0..3000).map(|n| format!("Contato {n},{}\n", phone(n))).collect();
    write!(file, "name,phone\n{rows}").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let report = json_of(&run(&["import", &path, "--watch"], &env), 0);
    assert_eq!((&report["imported"], &report["skipped"]), (&json!(3000), &json!(0)));
    writeln!(file, "Sem telefone,123").unwrap();
    let output = run(&["import", &path], &env);
    fails(&output, 4, "skipped rows: 1");
    assert_eq!(json_of(&output, 4)["errors"][0]["line"], 3002);
    let empty = NamedTempFile::new().unwrap();
    fails(
        &run(&["import", empty.path().to_str().unwrap()], &env),
        1,
        "VALIDATION_ERROR",
    );
}

/// Starts `recado listen` and waits until it forwards.
fn listen(arguments: &[&str], env: &Env) -> Process {
    let process = Process::start(&[&["listen"], arguments].concat(), env);
    until("recado listen is ready", || process.log().contains("forwarding events"));
    process
}

#[test]
fn listen_forwards_new_events_signed_and_waits_for_the_program() {
    let server = Server::new();
    let ana = server.owner();
    let mut env = environment(&ana);
    fails(&run(&["listen", "1"], &env), 1, "no webhook subscribes");
    ana.post(
        "/api/webhooks",
        json!({ "name": "Feed", "url": "https://example.com/", "events": ["*"], "is_active": false }),
    )
    .created();
    ana.contact("Antes", &phone(0));
    server.db.wait_for_outbox();

    let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    env.push(("RECADO_WEBHOOK_SECRET", secret.to_owned()));
    let receiver = Receiver::start(ReceiverOptions {
        secret: Some(secret.to_owned()),
        ..Default::default()
    })
    .unwrap();
    let process = listen(&[&receiver.url("/hooks"), "--type", "contact.created"], &env);
    let contact = ana.contact("Bia", &phone(1));
    ana.put(&format!("/api/contacts/{contact}"), json!({ "name": "Bia Lima" }))
        .ok();
    ana.contact("Caio", &phone(2));
    until("two events are forwarded", || {
        receiver.deliveries_to("/hooks").len() == 2
    });
    let names: Vec<String> = receiver
        .deliveries()
        .iter()
        .map(|delivery| text(&delivery.json()["data"]["name"]))
        .collect();
    assert_eq!(names, ["Bia", "Caio"]);
    let line = eventually("the events are printed", || {
        process
            .log()
            .lines()
            .find(|line| line.contains("contact.created"))
            .map(str::to_owned)
    });
    assert!(line.ends_with(" 200"), "{line}");
    let first = line.split(' ').nth(2).unwrap().to_owned();
    drop(process);

    // From an event on, to a program that is not there yet.
    let port = ReservedPort::new().unwrap();
    let bind = port.address();
    let number = port.number().to_string();
    drop(port);
    let process = listen(&[&number, "--cursor", &first, "--type", "contact.created"], &env);
    until("it waits", || process.log().contains("waiting for the program"));
    let late = Receiver::start(ReceiverOptions {
        bind,
        secret: Some(secret.to_owned()),
    })
    .unwrap();
    until("the event is forwarded", || late.count() == 1);
    assert_eq!(late.deliveries()[0].json()["data"]["name"], "Caio");
}

#[test]
fn tail_follows_a_run_to_its_end() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let campaign = ana.campaign_to("todos", 0..3);
    let env = environment(&ana);
    let mut process = Process::start(&["tail", &campaign], &env);
    until("the draft is shown", || process.log().contains("draft  total 0"));
    ana.execute(&campaign).ok();
    assert_eq!(process.wait(), Some(0));
    let log = process.log();
    assert!(
        log.lines().last().unwrap().starts_with("completed  total 3  pending 0"),
        "{log}"
    );
    let unknown = "0190a1b2-c3d4-7e5f-8a9b-000000000001";
    fails(&run(&["tail", unknown], &env), 1, "404 NOT_FOUND");
}
