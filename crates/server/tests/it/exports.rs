//! CSV exports: content, guards against formula injection, and streaming to slow readers without a held connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::users::User;
use crate::harness::{Server, eventually, until};

const BYTE_ORDER_MARK: char = '\u{feff}';

fn get_export(user: &User<'_>, query: &str) -> Reply {
    user.get(&format!("/api/analytics/export?{query}"))
}

/// Parses the records as any CSV reader would. Asserts that the byte order mark stands once, at the start.
#[track_caller]
fn records(reply: &Reply) -> Vec<Vec<String>> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.text.starts_with(BYTE_ORDER_MARK));
    assert_eq!(reply.text.matches(BYTE_ORDER_MARK).count(), 1);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(reply.text.trim_start_matches(BYTE_ORDER_MARK).as_bytes());
    let records = reader
        .records()
        .map(|record| record.unwrap().iter().map(str::to_owned).collect());
    records.collect()
}

/// Inserts `count` contacts, the first of them oldest, with names of about `length` characters.
fn insert_contacts(server: &Server, account: &str, count: usize, length: usize) {
    server.db.run(&format!(
        "INSERT INTO contacts (account_id, id, name, phone, created_at)
         SELECT '{account}', lpad(to_hex(n), 32, '0')::uuid, n || ' ' || repeat('x', {length}), '+55119' || lpad(n::text, 8, '0'),
           '2026-01-01'::timestamptz + n * interval '1 second'
         FROM generate_series(1, {count}) n"
    ));
}

#[test]
fn export_guards_formula_cells_and_can_be_imported() {
    let server = Server::new();
    let ana = server.owner();
    let names = [
        "=1+1",
        "+55",
        "-1",
        "@sum",
        "\ttab",
        "\nnewline",
        "\rreturn",
        "a,b",
        "say \"hi\"",
        "=\"x\",1",
        "linha\r\nfim",
        "José 🎉 ção",
        "'=quoted",
        " =spaced",
        "plain",
    ];
    for (number, name) in names.iter().enumerate() {
        let name: String = name
            .chars()
            .map(|c| format!("\\{:04x}", u32::from(c)).replace("\\1f389", "\\+01f389"))
            .collect();
        server.db.run(&format!(
            "INSERT INTO contacts (account_id, id, name, email, phone, created_at)
             VALUES ('{}', lpad('{number}', 32, '0')::uuid, U&'{name}', 'a@e.example', '+551196000{number:04}',
               '2026-03-01 12:00:00.5Z')",
            ana.account
        ));
    }
    let reply = get_export(&ana, "type=contacts");
    assert_eq!(reply.header("content-type"), Some("text/csv; charset=utf-8"));
    assert_eq!(
        reply.header("content-disposition"),
        Some("attachment; filename=\"contacts_export.csv\"")
    );
    assert!(reply.header("x-request-id").is_some_and(|id| !id.is_empty()));
    let header = "Nome,Telefone,Email,Criado em,wa_user_id";
    assert!(
        reply.text.starts_with(&format!("{BYTE_ORDER_MARK}{header}\r\n")),
        "{}",
        reply.text
    );
    let mut found = records(&reply);
    found.remove(0);
    found.reverse();
    let expected: Vec<String> = names
        .iter()
        .map(|name| {
            if name.starts_with(['=', '+', '-', '@', '\t', '\n', '\r']) {
                format!("'{name}")
            } else {
                (*name).into()
            }
        })
        .collect();
    let shown: Vec<&str> = found.iter().map(|record| record[0].as_str()).collect();
    assert_eq!(shown, expected);
    assert_eq!(
        found[3][1..],
        ["'+5511960000003", "a@e.example", "2026-03-01T12:00:00.500Z", ""]
    );
    // An export can be imported: the import drops the guard before a phone number.
    let csv = reply.text.replace(header, "name,phone,email,made,wa_user_id");
    let imported = ana.import(csv).ok();
    assert_eq!(imported["updated"], names.len(), "{imported}");
}

/// Contacts, and the newest of them that an export has.
const CONTACTS: usize = 10_001;
const EXPORTED: usize = 10_000;

#[test]
fn contact_export_has_the_newest_ten_thousand() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    insert_contacts(&server, &ana.account, CONTACTS, 20);
    let found = records(&get_export(&ana, "type=contacts"));
    assert_eq!(found.len(), 1 + EXPORTED);
    assert!(found[1][0].starts_with("10001 ") && found[EXPORTED][0].starts_with("2 "));
    assert_eq!(records(&get_export(&bia, "type=contacts")).len(), 1);
    let viewer = server.member(&ana.account, "viewer");
    assert_eq!(
        records(&get_export(&viewer, "type=contacts&period=7d")).len(),
        1 + EXPORTED
    );
    // The server streams in chunks: memory does not grow with the size of the export.
    let before = server.memory();
    for _ in 0..4 {
        assert_eq!(records(&get_export(&ana, "type=contacts")).len(), 1 + EXPORTED);
    }
    let extra = server.memory().saturating_sub(before);
    assert!(extra < 8 * 1024 * 1024, "{extra} bytes more");
}

#[test]
fn message_export_follows_period_campaign_export_has_all() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(2);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let account = &ana.account;
    server.db.run(&format!(
        "INSERT INTO conversations (account_id, id, contact_id, last_message_at)
         SELECT account_id, id, id, now() FROM contacts;
         INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, created_at)
         SELECT account_id, gen_random_uuid(), id, 'inbound', 'text', '-oi', 'received', now() - n * interval '1 day'
         FROM conversations CROSS JOIN (VALUES (1), (10), (40), (100)) v (n);
         INSERT INTO campaigns (account_id, id, name, scheduled_at, created_at)
         VALUES ('{account}', gen_random_uuid(), '@antiga', '2027-01-01 12:00Z', '2020-01-01')"
    ));
    for (query, count) in [
        ("", 6),
        ("&period=7d", 4),
        ("&period=30d", 6),
        ("&period=90d&tz=Asia/Kathmandu", 8),
    ] {
        let found = records(&get_export(&ana, &format!("type=messages{query}")));
        assert_eq!(found[0], ["Data", "Direção", "Tipo", "Status", "Conteúdo", "address"]);
        assert_eq!(found.len(), 1 + count, "{query}");
        assert_eq!(found[1][1..], ["outbound", "template", "sent", "Oi {{1}}", "phone"]);
        assert_eq!(found[3][1..], ["inbound", "text", "received", "'-oi", ""]);
    }
    let reply = get_export(&ana, "type=campaigns&period=7d");
    assert_eq!(
        reply.header("content-disposition"),
        Some("attachment; filename=\"campaigns_export.csv\"")
    );
    let found = records(&reply);
    assert_eq!(found[0], ["Nome", "Status", "Criado em", "Agendado para"]);
    assert_eq!(
        (found[1][0].as_str(), found[1][1].as_str(), found[1][3].as_str()),
        ("Oferta", "sent", "")
    );
    assert_eq!(
        found[2],
        [
            "'@antiga",
            "draft",
            "2020-01-01T00:00:00.000Z",
            "2027-01-01T12:00:00.000Z"
        ]
    );
}

#[test]
fn export_names_the_invalid_parameter() {
    let server = Server::new();
    let ana = server.owner();
    for (query, field) in [
        ("", "type"),
        ("type=", "type"),
        ("type=orders", "type"),
        ("type=Messages", "type"),
        ("type=%00", "type"),
        ("type=messages&period=1d", "period"),
        ("type=contacts&period=1d", "period"),
        ("type=messages&tz=Mars", "tz"),
        ("type=contacts&type=contacts", "type"),
    ] {
        assert_eq!(get_export(&ana, query).invalid(), [field], "{query}");
    }
}

/// Requests an export and reads only the start of the response.
fn stalled_reader(request: &Request) -> TcpStream {
    let mut stream = connect(request.port());
    stream.write_all(request.head("\r\n").as_bytes()).unwrap();
    let mut status_line = [0; 12];
    stream.read_exact(&mut status_line).unwrap();
    assert_eq!(&status_line, b"HTTP/1.1 200");
    stream
}

/// The tenant connections that execute a statement or have an open transaction.
fn count_busy_connections(server: &Server) -> i64 {
    server.db.count(
        "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'recado tenant'
           AND (state <> 'idle' OR xact_start IS NOT NULL)",
    )
}

#[test]
fn slow_export_readers_hold_no_connection() {
    let server = Server::new();
    let ana = server.owner();
    // Larger than all buffers between server and client.
    insert_contacts(&server, &ana.account, 10_001, 2_500);
    let request = ana.request("GET", "/api/analytics/export").query("type=contacts");
    // More readers than the pool has connections.
    let mut readers: Vec<TcpStream> = (0..20).map(|_| stalled_reader(&request)).collect();
    until("no connection is busy", || count_busy_connections(&server) == 0);
    // Every reader reads one kilobyte at a time.
    let (mut buffer, mut idle_rounds) = ([0; 1024], 0);
    for _ in 0..10 {
        for reader in &mut readers {
            reader.read_exact(&mut buffer).unwrap();
        }
        idle_rounds += i32::from(count_busy_connections(&server) == 0);
        ana.get("/api/analytics").ok();
    }
    assert!(
        idle_rounds >= 7,
        "no connection was busy in only {idle_rounds} of 10 rounds"
    );
    let held = "FROM pg_stat_activity WHERE datname = current_database() AND now() - xact_start > interval '5 seconds'";
    assert_eq!(server.db.count(held), 0);
    // One reader reads to the end, the others disconnect.
    let mut last = readers.pop().unwrap();
    drop(readers);
    let (mut total, mut buffer, mut end) = (0, vec![0; 1 << 20], Vec::new());
    while !end.ends_with(b"\r\n0\r\n\r\n") {
        let read = last.read(&mut buffer).unwrap();
        assert!(read > 0, "cut off after {total}");
        total += read;
        end.extend_from_slice(&buffer[..read]);
        end.drain(..end.len().saturating_sub(16));
    }
    assert!(total > 10_000 * 2_500, "{total}");
    until("no connection is busy", || count_busy_connections(&server) == 0);
}

#[test]
fn export_that_fails_midway_is_cut_off() {
    let server = Server::new();
    let ana = server.owner();
    insert_contacts(&server, &ana.account, 10_001, 2_500);
    let request = ana.request("GET", "/api/analytics/export").query("type=contacts");
    let mut reader = stalled_reader(&request);
    until("no connection is busy", || count_busy_connections(&server) == 0);
    server.db.run("ALTER TABLE contacts RENAME TO contacts_gone");
    let mut all = Vec::new();
    // The response ends without the last chunk, so the client sees that it is incomplete.
    reader.read_to_end(&mut all).ok();
    assert!(!all.ends_with(b"0\r\n\r\n"));
    assert!(all.len() < 10_000 * 2_500);
    // An export that cannot start returns an error.
    get_export(&ana, "type=contacts").refused(500, "INTERNAL_ERROR");
    server.db.run("ALTER TABLE contacts_gone RENAME TO contacts");
    eventually("exports work again", || {
        (get_export(&ana, "type=campaigns").status == 200).then_some(())
    });
}
