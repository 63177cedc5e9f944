//! Uploads: accepted types and sizes, refusals, and no files left by a refused upload.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::client::connect;
use crate::harness::media::{FORM, JPEG, MP4, PDF, PNG, WEBP, form, part_head};
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

const MB: usize = 1_048_576;

fn padded(head: &[u8], length: usize) -> Vec<u8> {
    let mut content = head.to_vec();
    content.resize(length, b'x');
    content
}

/// The width that the header of `PNG` declares.
const PNG_WIDTH: u32 = 60_000;

#[test]
fn upload_of_each_type_is_stored_and_served() {
    assert_eq!(PNG[16..20], PNG_WIDTH.to_be_bytes());
    let server = Server::new();
    let ana = server.owner();
    for (content, kind, extension) in [
        (PNG, "image/png", "png"),
        (JPEG, "image/jpeg", "jpg"),
        (WEBP, "image/webp", "webp"),
        (MP4, "video/mp4", "mp4"),
        (PDF, "application/pdf", "pdf"),
    ] {
        // The content decides the type. The declared type and the file extension are ignored.
        let stored = ana.upload("../../oferta de março.html", content).ok();
        assert_eq!(stored.as_object().unwrap().len(), 4);
        assert_eq!(
            (&stored["type"], &stored["size"]),
            (&json!(kind), &json!(content.len()))
        );
        assert_eq!(stored["name"], "oferta de março.html");
        let url = text(&stored["url"]);
        let path = url
            .strip_prefix(&format!("http://127.0.0.1:{}/media/", server.port()))
            .unwrap();
        let id = path.strip_prefix(&format!("{}/", ana.account)).unwrap();
        let id = id.strip_suffix(&format!(".{extension}")).unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{url}");
        assert!(server.media.files().contains(&path.to_owned()));
        assert_eq!(std::fs::read(server.media.path().join(path)).unwrap(), content);
        let (status, head) = server.get(&format!("/media/{path}")).response_head();
        assert_eq!(status, 200);
        for header in [
            &format!("content-type: {kind}"),
            "content-disposition: inline",
            "x-content-type-options: nosniff",
            "cache-control: public, max-age=31536000, immutable",
            "content-security-policy: default-src 'none'; sandbox",
            &format!("content-length: {}", content.len()),
        ] {
            assert!(head.lines().any(|line| line == header), "{header}: {head}");
        }
    }
    assert_eq!(server.media.files().len(), 5);
    let sixth = ana.upload("a.png", PNG);
    assert_eq!(sixth.header("x-ratelimit-limit"), Some("5"));
    sixth.refused(429, "RATE_LIMIT");
}

#[test]
fn upload_of_other_content_is_refused() {
    const PARTS: usize = 1000;
    let server = Server::new();
    let html = b"<!doctype html><script>alert(1)</script>";
    let contents: [&[u8]; 8] = [
        html,
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"GIF89a/*polyglot*/=1;",
        b"\0\0\0\x18ftypheic\0\0\0\0",
        b"PK\x03\x04............",
        b" \x89PNG\r\n\x1A\n........",
        b"%PD",
        b"",
    ];
    for four in contents.chunks(4) {
        let ana = server.owner();
        for content in four {
            assert_eq!(ana.upload("a.png", content).invalid(), ["file"]);
        }
    }
    let ana = server.owner();
    assert_eq!(ana.upload_form(form(&[("image", "a.png", PNG)])).invalid(), ["file"]);
    let two = form(&[("file", "a.png", PNG), ("file", "b.png", PNG)]);
    assert_eq!(ana.upload_form(two).invalid(), ["file"]);
    let many = vec![("note", "n", &b"x"[..]); PARTS];
    assert_eq!(ana.upload_form(form(&many)).invalid(), ["body"]);
    let mut unterminated = form(&[("file", "a.pdf", &padded(PDF, 3 * MB))]);
    unterminated.truncate(unterminated.len() - 10);
    assert_eq!(ana.upload_form(unterminated).invalid(), ["body"]);
    assert_eq!(server.media.files(), Vec::<String>::new());
    // The first bytes decide the type of a polyglot file. The `nosniff` header stops browsers from guessing another.
    let polyglot = server.owner().upload("a.png", &[PDF, html].concat()).ok();
    assert_eq!(polyglot["type"], "application/pdf");
}

#[test]
fn upload_without_a_multipart_form_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let post = |media_type: &str, body: &[u8]| {
        ana.request("POST", "/api/templates/media/upload")
            .body(media_type, body)
            .send()
    };
    post("image/png", PNG).refused(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(post("multipart/form-data", PNG).invalid(), ["body"]);
    assert_eq!(post(FORM, b"").invalid(), ["body"]);
    assert_eq!(post(FORM, b"------recadoX").invalid(), ["body"]);
    let endless = [b"------recado\r\nX: ".as_slice(), &vec![b'a'; 20_000]].concat();
    assert_eq!(post(FORM, &endless).invalid(), ["body"]);
    assert_eq!(server.media.files(), Vec::<String>::new());
}

#[test]
fn upload_over_the_size_limit_of_its_type_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let largest = ana.upload("a.png", &padded(PNG, 5 * MB)).ok();
    assert_eq!(largest["size"], 5 * MB);
    assert_eq!(ana.upload("a.png", &padded(PNG, 5 * MB + 1)).invalid(), ["file"]);
    let chunked = |content: &[u8]| {
        let body = form(&[("file", "a.bin", content)]);
        let chunks: Vec<&[u8]> = body.chunks(60_000).collect();
        let request = ana
            .request("POST", "/api/templates/media/upload")
            .header("Content-Type", FORM);
        request.send_chunked(&chunks)
    };
    for content in [padded(JPEG, 5 * MB + 1), padded(MP4, 16 * MB + 1)] {
        let (status, body) = chunked(&content);
        assert!(status == 422 && body.contains("\"file\""), "{status} {body}");
    }
    assert_eq!(server.media.files().len(), 1);
    // The declared length exceeds every limit: the server refuses without reading the body.
    let bia = server.owner();
    let mut stream = start_upload(&bia, 101 * MB);
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 422 "), "{response}");
    assert!(
        response.contains(r#""file":["must have at most 104857600 bytes"]"#),
        "{response}"
    );
}

#[test]
fn upload_with_too_many_other_bytes_is_too_large() {
    let server = Server::new();
    let mut unterminated = form(&[("file", "a.png", PNG)]);
    unterminated.truncate(unterminated.len() - "--\r\n".len());
    let head = part_head("note", "n.txt", "text/plain");
    let (_, head) = head.split_once("\r\n").unwrap();
    let (line, junk) = (format!("\r\n{head}"), padded(b"junk", MB));
    let chunks: Vec<&[u8]> = [unterminated.as_slice(), line.as_bytes()]
        .into_iter()
        .chain(std::iter::repeat_n(junk.as_slice(), 100))
        // The server stops reading after the refusal, so this is the last chunk.
        .chain([&junk[..64 * 1024]])
        .collect();
    let ana = server.owner();
    let request = ana
        .request("POST", "/api/templates/media/upload")
        .header("Content-Type", FORM);
    let (status, response) = request.send_chunked(&chunks);
    assert!(
        status == 413 && response.contains("PAYLOAD_TOO_LARGE"),
        "{status} {response}"
    );
    assert_eq!(server.media.files(), Vec::<String>::new());
}

/// Sends the head of an upload of `length` bytes.
fn start_upload(user: &User<'_>, length: usize) -> TcpStream {
    let mut stream = connect(user.server.port());
    let head = format!(
        "POST /api/templates/media/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: {FORM}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
        user.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn status(stream: &mut TcpStream) -> u16 {
    let mut response = [0; 12];
    stream.read_exact(&mut response).unwrap();
    std::str::from_utf8(&response[9..]).unwrap().parse().unwrap()
}

#[test]
fn broken_upload_leaves_no_file() {
    let server = Server::new();
    let ana = server.owner();
    let body = form(&[("file", "a.pdf", &padded(PDF, 20 * MB))]);
    let mut stream = start_upload(&ana, body.len());
    stream.write_all(&body[..body.len() * 99 / 100]).unwrap();
    until("the file is being written", || !server.media.files().is_empty());
    let written = server.media.files();
    assert!(
        written[0].contains('#'),
        "an unfinished file has a name that no URL matches: {written:?}"
    );
    drop(stream);
    until("the unfinished file is deleted", || server.media.files().is_empty());
    assert_eq!(ana.upload("a.pdf", PDF).status, 200);
}

#[test]
fn failing_or_unset_media_store_returns_502() {
    let server = Server::new();
    let ana = server.owner();
    std::fs::remove_dir_all(server.media.path()).unwrap();
    std::fs::write(server.media.path(), b"no directory").unwrap();
    ana.upload("a.png", PNG).refused(502, "STORAGE_ERROR");
    ana.upload("a.pdf", &padded(PDF, 3 * MB)).refused(502, "STORAGE_ERROR");
    std::fs::remove_file(server.media.path()).unwrap();
    let unset = Server::start(Options::default().with("MEDIA_STORE_URL", ""));
    let error = unset.owner().upload("a.png", PNG).refused(502, "STORAGE_ERROR");
    assert!(text(&error["message"]).contains("not configured"), "{error}");
}

#[test]
fn media_route_serves_only_stored_files() {
    let server = Server::new();
    let ana = server.owner();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let path = url.split_once("/media/").unwrap().1;
    std::fs::write(server.media.path().join("secret.png"), b"secret").unwrap();
    let file = path.split_once('/').unwrap().1;
    for path in [
        format!("/media/{}", path.replace(".png", ".jpg")),
        format!("/media/{}", path.replace(".png", ".html")),
        format!("/media/{}", path.to_uppercase()),
        format!("/media/{}%2F..%2F{path}", ana.account),
        format!("/media/..%2Fsecret/{file}"),
        format!("/media/%2E%2E/{file}"),
        "/media/x/secret.png".to_owned(),
        format!("/media/{}/%2E%2E%2Fsecret.png", ana.account),
        format!("/media/{path}%00"),
        format!("/media/{path}%231"),
        format!("/media/{}", ana.account),
    ] {
        server.get(&path).send().refused(404, "NOT_FOUND");
    }
    server
        .post(&format!("/media/{path}"))
        .send()
        .refused(405, "METHOD_NOT_ALLOWED");
}

#[test]
fn upload_with_a_repeated_key_is_stored_once() {
    let server = Server::new();
    let ana = server.owner();
    let send = |content: &[u8]| {
        let request = ana.request("POST", "/api/templates/media/upload");
        let request = request.header("Idempotency-Key", "once");
        request.body(FORM, form(&[("file", "a.pdf", content)])).send()
    };
    let content = padded(PDF, 2 * MB);
    let (first, again) = (send(&content), send(&content));
    assert_eq!((first.status, &first.text), (200, &again.text));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    send(&padded(PDF, 2 * MB + 1)).refused(409, "CONFLICT");
    assert_eq!(server.media.files().len(), 1);
}

/// Neither the server nor the test holds the whole file in memory.
#[test]
fn hundred_megabyte_upload_uses_little_memory() {
    let server = Server::new();
    let ana = server.owner();
    ana.upload("warm.pdf", &padded(PDF, 4 * MB)).ok();
    let before = server.peak_memory();
    let head = part_head("file", "large.pdf", "application/pdf");
    let tail = "\r\n------recado--\r\n";
    let mut stream = start_upload(&ana, head.len() + 100 * MB + tail.len());
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = padded(PDF, 64 * 1024);
    for _ in 0..100 * MB / chunk.len() {
        stream.write_all(&chunk).unwrap();
    }
    stream.write_all(tail.as_bytes()).unwrap();
    assert_eq!(status(&mut stream), 200);
    let growth = server.peak_memory().saturating_sub(before);
    assert!(growth < 16 * 1_048_576, "{growth} bytes more");
    let largest = server
        .media
        .files()
        .into_iter()
        .map(|file| std::fs::metadata(server.media.path().join(file)).unwrap().len());
    assert_eq!(largest.max(), Some(104_857_600));
}
