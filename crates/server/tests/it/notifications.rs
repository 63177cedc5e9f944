//! Notifications: the list, what is read, and the stream.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::stream::{Piece, Stream};
use crate::harness::users::{User, now, sign};
use crate::harness::{DEADLINE, Server, eventually, shortest, text, until};

/// Does something that notifies: cancels a scheduled campaign; its id.
fn notify(ana: &User<'_>) -> String {
    let id = ana.plain_campaign();
    ana.server.db.run(&format!(
        "UPDATE campaigns SET status = 'scheduled', scheduled_at = now() + interval '1 day' WHERE id = '{id}'"
    ));
    ana.cancel(&id).ok();
    id
}

fn list(ana: &User<'_>, query: &str) -> Vec<Value> {
    let found = ana.get(&format!("/api/notifications{query}")).ok();
    found["data"].as_array().unwrap().clone()
}

fn stream(ana: &User<'_>) -> Stream {
    let stream = Stream::open(&ana.request("GET", "/api/notifications/stream"));
    assert_eq!(stream.status, 200, "{}", stream.head);
    stream
}

/// So many notifications, written at once; the last one's id.
fn fill(ana: &User<'_>, count: usize) -> String {
    let account = &ana.account;
    ana.server.db.run(&format!(
        "INSERT INTO notifications (account_id, id, type, title, message)
         SELECT '{account}', md5('{account}' || i)::uuid, 'info', 'n' || i, 'm' FROM generate_series(1, {count}) i ORDER BY i"
    ));
    ana.server.db.text(&format!("SELECT md5('{account}' || {count})::uuid"))
}

#[test]
fn a_notification_is_listed_by_the_time_its_cause_is_answered() {
    let server = Server::new();
    let ana = server.owner();
    for round in 1..=8 {
        let campaign = notify(&ana);
        let found = list(&ana, "");
        assert_eq!(
            (found.len(), &found[0]["data"]["campaign_id"]),
            (round, &json!(campaign))
        );
    }
    let one = list(&ana, "?limit=1").remove(0);
    let mut fields: Vec<&str> = one.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["created_at", "data", "id", "message", "read_at", "title", "type"]
    );
    assert_eq!((&one["type"], &one["read_at"]), (&json!("info"), &json!(null)));
    // Newest first, slice by slice.
    let first = ana.get("/api/notifications?limit=5").ok();
    let rest = ana
        .get(&format!(
            "/api/notifications?limit=5&cursor={}",
            text(&first["nextCursor"])
        ))
        .ok();
    assert_eq!(
        (first["data"].as_array().unwrap().len(), &rest["hasMore"]),
        (5, &json!(false))
    );
    let ids: Vec<String> = [&first, &rest]
        .into_iter()
        .flat_map(|slice| slice["data"].as_array().unwrap())
        .map(|one| text(&one["id"]))
        .collect();
    assert!(ids.len() == 8 && ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    assert_eq!(ana.get("/api/notifications?unread=maybe").invalid(), ["unread"]);
    assert_eq!(ana.get("/api/notifications?cursor=7").invalid(), ["cursor"]);
}

#[test]
fn reading_is_the_accounts_and_every_role_may() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let viewer = server.member(&ana.account, "viewer");
    for _ in 0..3 {
        notify(&ana);
    }
    notify(&bia);
    let first = text(&list(&ana, "?unread=true")[0]["id"]);
    let read = |user: &User<'_>, id: &str| user.request("POST", &format!("/api/notifications/{id}/read")).send();
    read(&bia, &first).refused(404, "NOT_FOUND");
    read(&ana, &Uuid::now_v7().to_string()).refused(404, "NOT_FOUND");
    assert_eq!(list(&ana, "?unread=true").len(), 3);
    read(&viewer, &first).gone();
    let at = list(&ana, "")[0]["read_at"].clone();
    assert!(at.is_string());
    read(&ana, &first).gone();
    assert_eq!(list(&ana, "")[0]["read_at"], at, "read once");
    assert_eq!(list(&ana, "?unread=true").len(), 2);
    notify(&ana);
    let key = api_keys::key(&ana);
    server.post("/api/notifications/read-all").bearer(&key).send().gone();
    assert_eq!(list(&ana, "?unread=true"), Vec::<Value>::new());
    assert!(list(&ana, "?unread=false").iter().all(|one| one["read_at"].is_string()));
    assert_eq!(list(&bia, "?unread=true").len(), 1);
}

#[test]
fn a_stream_tells_within_a_second_and_of_nobody_else() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    notify(&ana);
    list(&ana, "");
    let viewer = server.member(&ana.account, "viewer");
    let (mut own, mut theirs) = (stream(&ana), stream(&viewer));
    assert!(own.head.contains("content-type: text/event-stream"), "{}", own.head);
    assert_eq!(own.next(), Some(Piece::Comment));
    let mut times = Vec::new();
    for _ in 0..3 {
        notify(&bia);
        let campaign = notify(&ana);
        let answered = Instant::now();
        let (id, data) = own.event();
        times.push(answered.elapsed());
        assert_eq!(
            (&data["data"]["campaign_id"], &data["id"]),
            (&json!(campaign), &json!(id))
        );
        assert_eq!(theirs.event(), (id, data.clone()));
        assert_eq!(list(&ana, "?limit=1"), [data]);
    }
    assert!(shortest(times.clone()) < Duration::from_secs(1), "{times:?}");
    // Idle, it shows that it lives, and asks the database for nothing but the look for news.
    let began = Instant::now();
    assert_eq!(own.next(), Some(Piece::Comment));
    assert!(began.elapsed() > Duration::from_secs(8) && began.elapsed() < DEADLINE);
}

#[test]
fn a_stream_that_comes_back_is_told_what_it_missed() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let mut first = stream(&ana);
    notify(&ana);
    let (last, _) = first.event();
    drop(first);
    let missed = [notify(&ana), notify(&ana)];
    let again = |id: &str| {
        Stream::open(
            &ana.request("GET", "/api/notifications/stream")
                .header("Last-Event-ID", id),
        )
    };
    let mut back = again(&last);
    for campaign in missed {
        assert_eq!(back.event().1["data"]["campaign_id"], json!(campaign));
    }
    let fresh = notify(&ana);
    assert_eq!(back.event().1["data"]["campaign_id"], json!(fresh));
    // An id that names nothing of the account's replays nothing.
    notify(&bia);
    let foreign = text(&list(&bia, "")[0]["id"]);
    for id in [foreign.as_str(), &Uuid::now_v7().to_string(), "7", "\u{e9}"] {
        let mut nothing = again(id);
        assert_eq!(nothing.next(), Some(Piece::Comment));
        let campaign = notify(&ana);
        assert_eq!(nothing.event().1["data"]["campaign_id"], json!(campaign), "{id}");
    }
    // However many they are.
    let missed = usize::try_from(
        server
            .db
            .count(&format!("FROM notifications WHERE account_id = '{}'", ana.account)),
    );
    fill(&ana, 2100);
    let mut long = again(&last);
    let before: Vec<String> = (1..missed.unwrap()).map(|_| text(&long.event().1["title"])).collect();
    assert!(before.iter().all(|title| !title.starts_with('n')), "{before:?}");
    let titles: Vec<String> = (0..2100).map(|_| text(&long.event().1["title"])).collect();
    let expected: Vec<String> = (1..=2100).map(|number| format!("n{number}")).collect();
    assert_eq!(titles, expected);
    let campaign = notify(&ana);
    assert_eq!(long.event().1["data"]["campaign_id"], json!(campaign));
}

#[test]
fn a_stream_ends_with_the_access_of_its_caller() {
    let server = Server::new();
    let ana = server.owner();
    let member = server.member(&ana.account, "member");
    let mut removed = stream(&member);
    let claims = json!({ "sub": ana.id, "email": ana.email, "exp": now() + 3 });
    let short = server.get("/api/notifications/stream").bearer(&sign(&claims));
    let mut expired = Stream::open(&short);
    assert_eq!(expired.status, 200);
    let key = api_keys::key(&ana);
    let mut keyed = Stream::open(&server.get("/api/notifications/stream").bearer(&key));
    let mut stays = stream(&ana);
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", member.id));
    server.db.run("DELETE FROM api_key_hashes");
    let began = Instant::now();
    assert_eq!((removed.end(), keyed.end(), expired.end()), (0, 0, 0));
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    let campaign = notify(&ana);
    assert_eq!(stays.event().1["data"]["campaign_id"], json!(campaign));
    // The server stops without waiting for anybody.
    let began = Instant::now();
    assert_eq!(server.stop(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(stays.end(), 0);
}

#[test]
fn streams_are_bounded_and_hold_no_connection_to_the_database() {
    let server = Server::new();
    // Three streams a person.
    let people: Vec<_> = (0..334).map(|_| server.owner()).collect();
    let (ana, last) = (&people[0], &people[333]);
    let connections = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'recado%'";
    let mut open: Vec<Stream> = (0..1000).map(|number| stream(&people[number / 3])).collect();
    last.get("/api/notifications/stream").refused(503, "UNAVAILABLE");
    let busy = format!("{connections} AND state <> 'idle'");
    until("nobody holds a connection", || server.db.count(&busy) == 0);
    assert!(server.db.count(connections) < 45);
    let campaign = notify(ana);
    for stream in open.iter_mut().take(3) {
        assert_eq!(stream.event().1["data"]["campaign_id"], json!(campaign));
    }
    // Whoever goes makes room, as soon as the server notices.
    open.truncate(10);
    eventually("a stream opens again", || {
        let stream = Stream::open(&last.request("GET", "/api/notifications/stream"));
        (stream.status == 200).then_some(())
    });
}

#[test]
fn a_server_without_workers_tells_what_others_did() {
    let server = Server::new();
    let ana = server.owner();
    let routes = server.sibling_of(&["serve", "--no-workers"]);
    let mut stream = Stream::open(&routes.request("GET", "/api/notifications/stream").bearer(&ana.token));
    let mut times = Vec::new();
    for _ in 0..3 {
        let campaign = notify(&ana);
        let answered = Instant::now();
        assert_eq!(stream.event().1["data"]["campaign_id"], json!(campaign));
        times.push(answered.elapsed());
    }
    assert!(shortest(times.clone()) < Duration::from_secs(1), "{times:?}");
}
