//! Import of contacts from CSV and NDJSON files.

use serde_json::{Value, json};

use crate::harness::client::connect;
use crate::harness::users::{User, phone};
use crate::harness::{Server, text, until};

const EXAMPLE: &str = include_str!("../../../../docs/examples/contacts.csv");

fn numbers(report: &Value) -> [i64; 3] {
    ["imported", "updated", "skipped"].map(|field| report[field].as_i64().unwrap())
}

#[test]
fn example_file_imported_twice_updates_the_contacts() {
    let server = Server::new();
    let ana = server.owner();
    let first = ana.import(EXAMPLE).ok();
    assert_eq!(numbers(&first), [214, 4, 8], "{first}");
    let errors = first["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 8);
    let lines: Vec<i64> = errors.iter().map(|error| error["line"].as_i64().unwrap()).collect();
    assert!(
        lines.is_sorted() && lines.iter().all(|line| (2..=227).contains(line)),
        "{lines:?}"
    );
    assert!(
        errors
            .iter()
            .all(|error| error["message"].as_str().is_some_and(|m| !m.is_empty()))
    );
    assert_eq!(server.db.count("FROM contacts"), 214);
    let second = ana.import(EXAMPLE).ok();
    assert_eq!(numbers(&second), [0, 218, 8], "{second}");
    assert_eq!(server.db.count("FROM contacts"), 214);
    assert_eq!(second["errors"], first["errors"]);
}

#[test]
fn csv_columns_in_any_order_unknown_become_attributes() {
    let server = Server::new();
    let ana = server.owner();
    let csv = "\u{feff}tags,Phone,cidade,name,email\r\n\
               vip; novo ,'+5511961234567,\"São Paulo, SP\",\"Ana \"\"A\"\" Lima\",ana@loja.example\r\n";
    assert_eq!(numbers(&ana.import(csv).ok()), [1, 0, 0]);
    let list = ana.get("/api/contacts").ok();
    let contact = &list["data"][0];
    assert_eq!(
        (&contact["name"], &contact["phone"]),
        (&json!("Ana \"A\" Lima"), &json!("+5511961234567"))
    );
    assert_eq!(contact["attributes"], json!({ "cidade": "São Paulo, SP" }));
    let tags: Vec<String> = contact["tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| text(&tag["name"]))
        .collect();
    assert_eq!(tags, ["novo", "vip"]);

    // Columns that the file omits keep their stored value.
    assert_eq!(
        numbers(&ana.import("name,phone\nAna Lima,1161234567\n").ok()),
        [0, 1, 0]
    );
    let list = ana.get("/api/contacts").ok();
    let contact = &list["data"][0];
    assert_eq!(
        (&contact["name"], &contact["email"]),
        (&json!("Ana Lima"), &json!("ana@loja.example"))
    );
    assert_eq!(contact["attributes"], json!({ "cidade": "São Paulo, SP" }));
    assert_eq!(contact["tags"].as_array().unwrap().len(), 2);
}

#[test]
fn import_errors_report_the_physical_line() {
    let server = Server::new();
    let ana = server.owner();
    let csv = format!(
        "name,phone,email\nAna,{},\n,{},\n\"Two\nlines\",{},\nBia,123,\nCaio,{},not-an-address\nDuda,\nEva,{},,,\n",
        phone(1),
        phone(2),
        phone(3),
        phone(4),
        phone(5)
    );
    let report = ana.import(csv).ok();
    let lines: Vec<i64> = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["line"].as_i64().unwrap())
        .collect();
    assert_eq!(&lines[..3], [3, 6, 7], "{report}");
    assert!(report["imported"].as_i64().unwrap() >= 2, "{report}");
}

#[test]
fn invalid_file_or_media_type_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    for csv in ["", "\n", "foo,bar\n1,2\n", "name\nAna\n", "phone\n11961234567\n"] {
        assert_eq!(ana.import(csv).status, 422, "{csv:?}");
    }
    let post = |media_type: &str| {
        ana.request("POST", "/api/contacts/import")
            .body(media_type, "name,phone\n")
    };
    for media_type in ["application/json", "text/plain", ""] {
        post(media_type).send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    post("text/csv")
        .header("Content-Encoding", "gzip")
        .send()
        .refused(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(numbers(&post("text/csv; charset=utf-8").send().ok()), [0, 0, 0]);
    let nul = format!("name,phone\nA\0na,{}\nBia,{}\n", phone(3), phone(4));
    let report = ana.import(nul);
    assert_eq!(report.status, 200, "{}", report.text);
}

#[test]
fn csv_split_into_single_bytes_is_imported() {
    let server = Server::new();
    let ana = server.owner();
    let csv = format!("name,phone,tags\n\"João, \"\"Jô\"\"\",{},é;ç\n", phone(1));
    let chunks: Vec<&[u8]> = csv.as_bytes().chunks(1).collect();
    let request = ana
        .request("POST", "/api/contacts/import")
        .header("Content-Type", "text/csv");
    let (status, body) = request.send_chunked(&chunks);
    assert_eq!(status, 200, "{body}");
    let contact = ana.get("/api/contacts").ok()["data"][0].clone();
    assert_eq!(contact["name"], "João, \"Jô\"");
    assert_eq!(contact["tags"].as_array().unwrap().len(), 2);
}

#[test]
fn large_import_reports_only_the_first_100_errors() {
    let server = Server::new();
    let ana = server.owner();
    let mut csv = "name,phone,email,tags,cidade\n".to_owned();
    for number in 0..20_000 {
        let phone = if number % 100 == 0 {
            "x".to_owned()
        } else {
            phone(number)
        };
        csv.push_str(&format!(
            "Contato {number},{phone},c{number}@loja.example,lote,Santos\n"
        ));
    }
    let report = ana.import(csv).ok();
    assert_eq!(numbers(&report), [19_800, 0, 200]);
    assert_eq!(report["errors"].as_array().unwrap().len(), 100);
    assert_eq!(report["errors"][0]["line"], 2);
    assert_eq!(server.db.count("FROM contact_tags"), 19_800);
    assert_eq!(server.db.count("FROM tags"), 1);
}

#[test]
fn broken_connection_keeps_the_imported_batches() {
    let server = Server::new();
    let ana = server.owner();
    let mut csv = "name,phone\n".to_owned();
    for number in 0..5000 {
        csv.push_str(&format!("Contato {number},{}\n", phone(number)));
    }
    let mut stream = connect(server.port());
    let head = format!(
        "POST /api/contacts/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: text/csv\r\n\
         Content-Length: {}\r\n\r\n",
        ana.token,
        csv.len() * 2
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    std::io::Write::write_all(&mut stream, csv.as_bytes()).unwrap();
    until("the first batches are written", || {
        server.db.count("FROM contacts") >= 1000
    });
    drop(stream);
    let again = ana.import(csv).ok();
    let [imported, updated, skipped] = numbers(&again);
    assert_eq!((imported + updated, skipped), (5000, 0));
    assert!(updated >= 1000);
    assert_eq!(server.db.count("FROM contacts"), 5000);
}

#[test]
fn concurrent_imports_create_each_contact_once() {
    let server = Server::new();
    let ana = server.owner();
    let lines = |order: &mut dyn Iterator<Item = usize>| {
        order.fold("name,phone,tags\n".to_owned(), |csv, n| {
            csv + &format!("C{n},{},a;b\n", phone(n))
        })
    };
    let (up, down) = (lines(&mut (0..3000)), lines(&mut (0..3000).rev()));
    let request = ana.request("POST", "/api/contacts/import");
    let reports = std::thread::scope(|scope| {
        let import = |csv: String| {
            let request = request.clone().body("text/csv", csv);
            scope.spawn(move || request.send().ok())
        };
        [import(up), import(down)].map(|thread| thread.join().unwrap())
    });
    let sums = reports.map(|report| numbers(&report));
    assert_eq!(sums[0][0] + sums[1][0], 3000, "{sums:?}");
    assert_eq!(sums[0][1] + sums[1][1], 3000, "{sums:?}");
    assert_eq!(
        (server.db.count("FROM contacts"), server.db.count("FROM tags")),
        (3000, 2)
    );
}

/// The contacts of an account, by name.
fn all_contacts(ana: &User<'_>) -> Vec<Value> {
    let list = ana.get("/api/contacts?limit=100").ok();
    let mut contacts = list["data"].as_array().unwrap().clone();
    contacts.sort_by_key(|contact| text(&contact["name"]));
    contacts
}

/// People whose phone number WhatsApp hides. A second import of the file changes nothing.
#[test]
fn contacts_without_phone_are_imported_by_user_id() {
    let server = Server::new();
    let ana = server.owner();
    let (bia, caio, eva) = (phone(1), phone(2), phone(3));
    let hidden = json!({ "name": "Ana", "wa_user_id": "BR.1a" });
    ana.post("/api/contacts", hidden).created();
    let csv = format!(
        "name,phone,wa_user_id,tags\nAna Lima,,BR.1a,vip\nBia,{bia},,\nCaio,{caio},BR.3c,\nDu,,BR.4d,novo\n\
         Nada,,,\nBia,{bia},BR.2b,\nEva,{eva},BR.3c,\nDu Sá,,BR.4d,vip\nCaio,{caio},BR.9,\nAna,,br.1,\n"
    );
    let report = ana.import(csv.as_str()).ok();
    assert_eq!(numbers(&report), [3, 3, 4], "{report}");
    let errors = json!([
        { "line": 6, "message": "has neither phone nor wa_user_id" },
        { "line": 8, "message": "wa_user_id belongs to another contact" },
        { "line": 10, "message": "wa_user_id is not the one that the contact with this phone has" },
        { "line": 11, "message": "wa_user_id is not a valid WhatsApp user id" },
    ]);
    assert_eq!(report["errors"], errors);
    let contacts = all_contacts(&ana);
    let keys: Vec<Value> = contacts
        .iter()
        .map(|c| json!([c["name"], c["phone"], c["wa_user_id"]]))
        .collect();
    let expected = json!([
        ["Ana Lima", null, "BR.1a"],
        ["Bia", bia, "BR.2b"],
        ["Caio", caio, "BR.3c"],
        ["Du Sá", null, "BR.4d"]
    ]);
    assert_eq!(json!(keys), expected);
    let again = ana.import(csv.as_str()).ok();
    assert_eq!((numbers(&again), &again["errors"]), ([0, 6, 4], &errors));
    // Du has two names in the file, so each import changes this contact twice.
    let unchanged = |contacts: Vec<Value>| -> Vec<Value> {
        contacts
            .into_iter()
            .filter(|contact| contact["name"] != "Du Sá")
            .collect()
    };
    assert_eq!(unchanged(all_contacts(&ana)), unchanged(contacts));
    // The same rows as JSON lines, and without a column for phone numbers.
    let request = ana.request("POST", "/api/contacts/import");
    let file = lines(&[
        json!({ "name": "Du Sá", "wa_user_id": "BR.4d" }),
        json!({ "name": "Fé", "wa_user_id": "US.ENT.5" }),
    ]);
    let report = request.body("application/x-ndjson", file).send().ok();
    assert_eq!(numbers(&report), [1, 1, 0], "{report}");
    assert_eq!(numbers(&ana.import("wa_user_id,name\nUS.ENT.5,Fé\n").ok()), [0, 1, 0]);
    let export = ana.get("/api/analytics/export?type=contacts");
    let made_anew = export.text.replace(
        "Nome,Telefone,Email,Criado em,wa_user_id",
        "name,phone,email,made,wa_user_id",
    );
    assert_eq!(numbers(&ana.import(made_anew).ok()), [0, 5, 0]);
    assert_eq!(server.db.count("FROM contacts"), 5);
}

/// One line of JSON per contact.
fn lines(contacts: &[Value]) -> String {
    contacts.iter().map(|contact| format!("{contact}\n")).collect()
}

#[test]
fn ndjson_is_imported_under_each_media_type() {
    let server = Server::new();
    let ana = server.owner();
    let file = lines(&[
        json!({ "name": "João", "phone": "11 6123-4567", "email": "j@loja.example", "tags": ["vip", "novo"],
                "cidade": "São Paulo", "pontos": 3, "attributes": { "cupom": "X5" }, "lista": [1] }),
        json!({ "name": "Bia", "phone": phone(1), "tags": "vip; Santos", "opted_out": true }),
        json!({ "name": "João S.", "phone": "+5511961234567", "pontos": 4 }),
        json!({ "name": "Sem número" }),
    ]) + "{\n";
    for (media_type, counts) in [
        ("application/x-ndjson", [2, 1, 2]),
        ("application/ndjson; charset=utf-8", [0, 3, 2]),
        ("Application/JSONL", [0, 3, 2]),
    ] {
        let request = ana.request("POST", "/api/contacts/import");
        let report = request.body(media_type, file.as_str()).send().ok();
        assert_eq!(numbers(&report), counts, "{media_type}: {report}");
        let errors = [
            json!({ "line": 4, "message": "has neither phone nor wa_user_id" }),
            json!({ "line": 5, "message": "line is not valid JSON" }),
        ];
        assert_eq!(report["errors"], json!(errors));
    }
    let list = ana.get("/api/contacts?search=Jo%C3%A3o").ok();
    let contact = &list["data"][0];
    assert_eq!(
        (&contact["name"], &contact["email"]),
        (&json!("João S."), &json!("j@loja.example"))
    );
    assert_eq!(
        contact["attributes"],
        json!({ "cidade": "São Paulo", "pontos": 4, "cupom": "X5" })
    );
    assert_eq!(contact["tags"].as_array().unwrap().len(), 2);
    let list = ana.get("/api/contacts?search=Bia").ok();
    assert!(list["data"][0]["opted_out_at"].is_string(), "{list}");
    assert_eq!(server.db.count("FROM tags"), 3);
    let request = ana.request("POST", "/api/contacts/import");
    assert_eq!(
        numbers(&request.body("application/x-ndjson", "").send().ok()),
        [0, 0, 0]
    );
}

#[test]
fn excel_csv_is_imported_as_saved() {
    let server = Server::new();
    let ana = server.owner();
    // Semicolons, CRLF, Windows-1252, an apostrophe before `+`, commas inside a quoted field.
    let head = b"Name;PHONE;tags;cidade\r\n".as_slice();
    let joao_line = b"Jo\xe3o;'+5511961234567;\"vip;novo\";\"S\xe3o Paulo, SP\"\r\n".as_slice();
    let antonio_line = b"Ant\xf4nio \x96 2\xba;11961230000;;Mar\xedlia".as_slice();
    let file = [head, joao_line, antonio_line].concat();
    let chunks: Vec<&[u8]> = file.chunks(1).collect();
    let request = ana
        .request("POST", "/api/contacts/import")
        .header("Content-Type", "text/csv");
    let (status, body) = request.send_chunked(&chunks);
    assert_eq!(status, 200, "{body}");
    let list = ana.get("/api/contacts").ok();
    let names: Vec<String> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["name"]))
        .collect();
    assert_eq!(names, ["Antônio – 2º", "João"]);
    assert_eq!(list["data"][1]["attributes"], json!({ "cidade": "São Paulo, SP" }));
    assert_eq!(list["data"][1]["tags"].as_array().unwrap().len(), 2);
    // The same contacts from a UTF-8 file with a byte order mark.
    let file = "\u{feff}name;phone\r\nJoão;1161234567\r\nAntônio;(11) 6123-0000\r\n";
    assert_eq!(numbers(&ana.import(file).ok()), [0, 2, 0]);
    assert_eq!(server.db.count("FROM contacts"), 2);
    // The first lines decide the encoding: a later line that is not UTF-8 is an error.
    let mixed = [
        b"name,phone\nJo\xc3\xa3o,11961234567\nJo\xe3o,11961234567\n".as_slice(),
        b"Ana,11961239999",
    ]
    .concat();
    let report = ana.import(mixed).ok();
    assert_eq!((numbers(&report), &report["errors"][0]["line"]), ([1, 1, 1], &json!(3)));
    assert_eq!(ana.import("name,phone,a\0\nAna,11961234567,x\n").invalid(), ["body"]);
}

#[test]
fn phone_number_in_two_batches_is_one_contact() {
    let server = Server::new();
    let ana = server.owner();
    let contact = |n: usize| json!({ "name": format!("C{n}"), "phone": phone(n % 1500) });
    let file = lines(&(0..2500).map(contact).collect::<Vec<_>>());
    let request = ana.request("POST", "/api/contacts/import");
    let report = request.body("application/x-ndjson", file).send().ok();
    assert_eq!(numbers(&report), [1500, 1000, 0]);
    assert_eq!(server.db.count("FROM contacts"), 1500);
    assert_eq!(server.db.count("FROM contacts WHERE name = 'C2499'"), 1);
}
