//! Contacts by the file.

use serde_json::{Value, json};

use crate::harness::people::phone;
use crate::harness::{Server, text, until};

const EXAMPLE: &str = include_str!("../../../../docs/examples/contacts.csv");

fn numbers(report: &Value) -> [i64; 3] {
    ["imported", "updated", "skipped"].map(|field| report[field].as_i64().unwrap())
}

#[test]
fn the_example_is_taken_in_twice() {
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
fn columns_come_in_any_order_and_unknown_ones_become_attributes() {
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

    // Again, with less: what the file does not say is kept.
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
fn errors_name_the_physical_line() {
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
fn a_file_that_is_none_is_refused() {
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
    let latin = [
        b"name,phone\nJo\xe3o,".as_slice(),
        phone(1).as_bytes(),
        b"\nAna,",
        phone(2).as_bytes(),
    ]
    .concat();
    let report = ana.import(latin).ok();
    assert_eq!(numbers(&report), [1, 0, 1], "{report}");
    let nul = format!("name,phone\nA\0na,{}\nBia,{}\n", phone(3), phone(4));
    let report = ana.import(nul);
    assert_eq!(report.status, 200, "{}", report.text);
}

#[test]
fn pieces_may_be_cut_anywhere() {
    let server = Server::new();
    let ana = server.owner();
    let csv = format!("name,phone,tags\n\"João, \"\"Jô\"\"\",{},é;ç\n", phone(1));
    let pieces: Vec<&[u8]> = csv.as_bytes().chunks(1).collect();
    let request = ana
        .request("POST", "/api/contacts/import")
        .header("Content-Type", "text/csv");
    let (status, body) = request.send_chunked(&pieces);
    assert_eq!(status, 200, "{body}");
    let contact = ana.get("/api/contacts").ok()["data"][0].clone();
    assert_eq!(contact["name"], "João, \"Jô\"");
    assert_eq!(contact["tags"].as_array().unwrap().len(), 2);
}

#[test]
fn twenty_thousand_lines_are_taken_in_and_only_the_first_errors_told() {
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
fn a_connection_that_breaks_leaves_what_came_before_and_the_server_well() {
    let server = Server::new();
    let ana = server.owner();
    let mut csv = "name,phone\n".to_owned();
    for number in 0..5000 {
        csv.push_str(&format!("Contato {number},{}\n", phone(number)));
    }
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
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
fn two_imports_at_once_agree() {
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
