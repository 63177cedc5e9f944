//! The WhatsApp simulator's faults and limits in the response to a send, and its shutdown.

use std::io::{Read, Write};
use std::time::Instant;

use recado_simulators::whatsapp::{Whatsapp, WhatsappFault, WhatsappFaultKind, WhatsappOptions};
use serde_json::Value;

use crate::whatsapp::{TO, code, message, send, start};
use crate::{request, wait_until};

#[test]
fn whatsapp_fault_that_rejects_accepts_no_message() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.script(vec![
        WhatsappFault::send_to(
            "+5531988887777",
            WhatsappFaultKind::error(131026, "Message undeliverable."),
        ),
        WhatsappFault::send(WhatsappFaultKind::Throttle),
        WhatsappFault::send(WhatsappFaultKind::RateLimited { retry_after_s: 7 }),
    ]);
    let throttled = send(&whatsapp, TO);
    assert_eq!((throttled.status, code(&throttled)), (400, 130429));
    let limited = send(&whatsapp, TO);
    assert_eq!((limited.status, limited.retry_after.as_deref()), (429, Some("7")));
    assert_eq!(send(&whatsapp, TO).status, 200);
    let failed = send(&whatsapp, "553188887777");
    assert_eq!(
        code(&failed),
        131026,
        "another format of the scripted recipient's number"
    );
    assert_eq!(
        failed.json()["error"]["error_data"]["details"],
        "Message undeliverable."
    );
    let counters = whatsapp.counters();
    assert_eq!((counters.accepted, counters.rejected), (1, 3));
}

#[test]
fn whatsapp_fault_after_acceptance_counts_the_message() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.script(vec![
        WhatsappFault::send(WhatsappFaultKind::AcceptThenStatus500),
        WhatsappFault::send(WhatsappFaultKind::GarbageJson),
        WhatsappFault::send(WhatsappFaultKind::AnswerWithoutId),
        WhatsappFault::send(WhatsappFaultKind::Hang { ms: 300 }),
        WhatsappFault::send(WhatsappFaultKind::AcceptThenReset),
    ]);
    let failed = send(&whatsapp, TO);
    assert_eq!((failed.status, code(&failed)), (500, 131000));
    let garbage = send(&whatsapp, TO);
    assert_eq!(garbage.status, 200);
    assert!(serde_json::from_str::<Value>(&garbage.text).is_err());
    let without_id = send(&whatsapp, TO);
    assert_eq!(without_id.status, 200);
    assert!(without_id.json()["messages"][0]["id"].is_null());
    let began = Instant::now();
    assert_eq!(send(&whatsapp, TO).status, 200);
    assert!(began.elapsed().as_millis() >= 300);

    let mut stream = std::net::TcpStream::connect(whatsapp.origin().strip_prefix("http://").unwrap()).unwrap();
    let body = message(TO, &["Ana"]).to_string();
    let head = format!(
        "POST /v25.0/1065/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut received = Vec::new();
    // The connection ends or is reset, but sends no byte.
    let _ = stream.read_to_end(&mut received);
    assert_eq!(received, b"");
    assert_eq!(whatsapp.counters().accepted, 5);
    let statuses: Vec<Option<u16>> = whatsapp.sends().iter().map(|sent| sent.request.status).collect();
    assert_eq!(statuses, [Some(500), Some(200), Some(200), Some(200), None]);
}

#[test]
fn whatsapp_limits_sends_per_number_and_recipient() {
    let whatsapp = start(WhatsappOptions {
        number_rate: Some(1),
        ..WhatsappOptions::default()
    });
    assert_eq!(send(&whatsapp, TO).status, 200);
    wait_until("the throughput limit", || send(&whatsapp, TO).text.contains("130429"));
    whatsapp.set_options(|options| (options.number_rate, options.pair_limit) = (None, true));
    let mut accepted = 0;
    wait_until("the pair limit", || {
        let response = send(&whatsapp, "+5521987654321");
        accepted += u32::from(response.status == 200);
        response.text.contains("131056")
    });
    assert!(accepted >= 45);
    assert_eq!(
        send(&whatsapp, "+5521987654322").status,
        200,
        "another recipient has its own limit"
    );
}

#[test]
fn whatsapp_drop_frees_the_port() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.script(vec![WhatsappFault::send(WhatsappFaultKind::Hang { ms: 60_000 })]);
    let url = format!("{}/1065/messages", whatsapp.base_url());
    let hung = std::thread::spawn(move || {
        let body = message(TO, &[]).to_string();
        request("POST", &url, &[("authorization", "Bearer t")], Some(body.as_bytes())).is_err()
    });
    wait_until("the hung send", || whatsapp.counters().accepted == 1);
    let bind = whatsapp.origin().strip_prefix("http://").unwrap().to_owned();
    drop(whatsapp);
    assert!(hung.join().unwrap(), "a hung send ends with the simulator");
    assert!(std::net::TcpStream::connect(&bind).is_err());
    assert!(
        Whatsapp::start(WhatsappOptions {
            bind: "not an address".into(),
            ..WhatsappOptions::default()
        })
        .is_err()
    );
}
