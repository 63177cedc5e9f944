//! Notifications: the list, read marks and the event stream.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::stream::{Stream, StreamItem};
use crate::harness::users::{User, now, sign};
use crate::harness::{DEADLINE, Server, assert_within_a_second, eventually, text, until};

/// Causes a notification: cancels a scheduled campaign, and returns the campaign's id.
fn cause_notification(ana: &User<'_>) -> String {
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

/// Inserts `count` notifications in one statement, and returns the id of the last.
fn insert_notifications(ana: &User<'_>, count: usize) -> String {
    let account = &ana.account;
    ana.server.db.run(&format!(
        "INSERT INTO notifications (account_id, id, type, title, message)
         SELECT '{account}', md5('{account}' || i)::uuid, 'info', 'n' || i, 'm' FROM generate_series(1, {count}) i ORDER BY i"
    ));
    ana.server.db.text(&format!("SELECT md5('{account}' || {count})::uuid"))
}

#[test]
fn notification_is_listed_when_its_cause_responds() {
    let server = Server::new();
    let ana = server.owner();
    for round in 1..=8 {
        let campaign = cause_notification(&ana);
        let found = list(&ana, "");
        assert_eq!(
            (found.len(), &found[0]["data"]["campaign_id"]),
            (round, &json!(campaign))
        );
    }
    let newest = list(&ana, "?limit=1").remove(0);
    let mut fields: Vec<&str> = newest.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        ["created_at", "data", "id", "message", "read_at", "title", "type"]
    );
    assert_eq!((&newest["type"], &newest["read_at"]), (&json!("info"), &json!(null)));
    // Pages are newest first.
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
        .flat_map(|page| page["data"].as_array().unwrap())
        .map(|notification| text(&notification["id"]))
        .collect();
    assert!(ids.len() == 8 && ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    assert_eq!(ana.get("/api/notifications?unread=maybe").invalid(), ["unread"]);
    assert_eq!(ana.get("/api/notifications?cursor=7").invalid(), ["cursor"]);
}

#[test]
fn read_mark_is_per_account_and_open_to_every_role() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let viewer = server.member(&ana.account, "viewer");
    for _ in 0..3 {
        cause_notification(&ana);
    }
    cause_notification(&bia);
    let first = text(&list(&ana, "?unread=true")[0]["id"]);
    let mark_read = |user: &User<'_>, id: &str| user.request("POST", &format!("/api/notifications/{id}/read")).send();
    mark_read(&bia, &first).refused(404, "NOT_FOUND");
    mark_read(&ana, &Uuid::now_v7().to_string()).refused(404, "NOT_FOUND");
    assert_eq!(list(&ana, "?unread=true").len(), 3);
    mark_read(&viewer, &first).no_content();
    let at = list(&ana, "")[0]["read_at"].clone();
    assert!(at.is_string());
    mark_read(&ana, &first).no_content();
    assert_eq!(
        list(&ana, "")[0]["read_at"],
        at,
        "the second call does not change `read_at`"
    );
    assert_eq!(list(&ana, "?unread=true").len(), 2);
    cause_notification(&ana);
    let key = api_keys::create_key(&ana);
    server
        .post("/api/notifications/read-all")
        .bearer(&key)
        .send()
        .no_content();
    assert_eq!(list(&ana, "?unread=true"), Vec::<Value>::new());
    assert!(
        list(&ana, "?unread=false")
            .iter()
            .all(|notification| notification["read_at"].is_string())
    );
    assert_eq!(list(&bia, "?unread=true").len(), 1);
}

#[test]
fn stream_delivers_own_notifications_within_a_second() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    cause_notification(&ana);
    list(&ana, "");
    let viewer = server.member(&ana.account, "viewer");
    let (mut owner_stream, mut viewer_stream) = (stream(&ana), stream(&viewer));
    assert!(
        owner_stream.head.contains("content-type: text/event-stream"),
        "{}",
        owner_stream.head
    );
    assert_eq!(owner_stream.next(), Some(StreamItem::Comment));
    let mut times = Vec::new();
    for _ in 0..10 {
        cause_notification(&bia);
        let campaign = cause_notification(&ana);
        let responded = Instant::now();
        let (id, data) = owner_stream.event();
        times.push(responded.elapsed());
        assert_eq!(
            (&data["data"]["campaign_id"], &data["id"]),
            (&json!(campaign), &json!(id))
        );
        assert_eq!(viewer_stream.event(), (id, data.clone()));
        assert_eq!(list(&ana, "?limit=1"), [data]);
    }
    assert_within_a_second(&times);
    // An idle stream sends a heartbeat comment.
    let began = Instant::now();
    assert_eq!(owner_stream.next(), Some(StreamItem::Comment));
    assert!(began.elapsed() > Duration::from_secs(8) && began.elapsed() < DEADLINE);
}

#[test]
fn reopened_stream_replays_missed_notifications() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let mut first = stream(&ana);
    cause_notification(&ana);
    let (last, _) = first.event();
    drop(first);
    let missed = [cause_notification(&ana), cause_notification(&ana)];
    let reopen = |id: &str| {
        Stream::open(
            &ana.request("GET", "/api/notifications/stream")
                .header("Last-Event-ID", id),
        )
    };
    let mut reopened = reopen(&last);
    for campaign in missed {
        assert_eq!(reopened.event().1["data"]["campaign_id"], json!(campaign));
    }
    let next = cause_notification(&ana);
    assert_eq!(reopened.event().1["data"]["campaign_id"], json!(next));
    // An id that is not a notification of the account replays nothing.
    cause_notification(&bia);
    let foreign = text(&list(&bia, "")[0]["id"]);
    for id in [foreign.as_str(), &Uuid::now_v7().to_string(), "7", "\u{e9}"] {
        let mut empty = reopen(id);
        assert_eq!(empty.next(), Some(StreamItem::Comment));
        let campaign = cause_notification(&ana);
        assert_eq!(empty.event().1["data"]["campaign_id"], json!(campaign), "{id}");
    }
    // More missed notifications than one batch of the replay holds.
    let missed = usize::try_from(
        server
            .db
            .count(&format!("FROM notifications WHERE account_id = '{}'", ana.account)),
    );
    insert_notifications(&ana, 2100);
    let mut long = reopen(&last);
    let before: Vec<String> = (1..missed.unwrap()).map(|_| text(&long.event().1["title"])).collect();
    assert!(before.iter().all(|title| !title.starts_with('n')), "{before:?}");
    let titles: Vec<String> = (0..2100).map(|_| text(&long.event().1["title"])).collect();
    let expected: Vec<String> = (1..=2100).map(|number| format!("n{number}")).collect();
    assert_eq!(titles, expected);
    let campaign = cause_notification(&ana);
    assert_eq!(long.event().1["data"]["campaign_id"], json!(campaign));
}

#[test]
fn stream_ends_when_its_caller_loses_access() {
    let server = Server::new();
    let ana = server.owner();
    let member = server.member(&ana.account, "member");
    let key = api_keys::create_key(&ana);
    // The notification about the key comes before the streams.
    server.db.wait_for_outbox();
    let mut removed = stream(&member);
    let claims = json!({ "sub": ana.id, "email": ana.email, "exp": now() + 3 });
    let short = server.get("/api/notifications/stream").bearer(&sign(&claims));
    let mut expired = Stream::open(&short);
    assert_eq!(expired.status, 200);
    let mut keyed = Stream::open(&server.get("/api/notifications/stream").bearer(&key));
    let mut open = stream(&ana);
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE user_id = '{}'", member.id));
    server.db.run("DELETE FROM api_key_hashes");
    assert_eq!((removed.end(), keyed.end(), expired.end()), (0, 0, 0));
    let campaign = cause_notification(&ana);
    assert_eq!(open.event().1["data"]["campaign_id"], json!(campaign));
    // The server stops without waiting for open streams.
    assert_eq!(server.stop(), Some(0));
    assert_eq!(open.end(), 0);
}

#[test]
fn streams_are_limited_and_hold_no_database_connection() {
    let server = Server::new();
    // Three streams per user.
    let users: Vec<_> = (0..334).map(|_| server.owner()).collect();
    let (ana, last) = (&users[0], &users[333]);
    let connections = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'recado%'";
    let mut open: Vec<Stream> = (0..1000).map(|number| stream(&users[number / 3])).collect();
    last.get("/api/notifications/stream").refused(503, "UNAVAILABLE");
    let busy = format!("{connections} AND state <> 'idle'");
    until("no stream holds a connection", || server.db.count(&busy) == 0);
    assert!(server.db.count(connections) < 45);
    let campaign = cause_notification(ana);
    for stream in open.iter_mut().take(3) {
        assert_eq!(stream.event().1["data"]["campaign_id"], json!(campaign));
    }
    // A closed stream frees its permit when the server notices.
    open.truncate(10);
    eventually("a stream opens again", || {
        let stream = Stream::open(&last.request("GET", "/api/notifications/stream"));
        (stream.status == 200).then_some(())
    });
}

#[test]
fn stream_delivers_on_a_server_without_workers() {
    let server = Server::new();
    let ana = server.owner();
    let routes = server.sibling_with_args(&["serve", "--no-workers"]);
    let mut stream = Stream::open(&routes.request("GET", "/api/notifications/stream").bearer(&ana.token));
    let mut times = Vec::new();
    for _ in 0..10 {
        let campaign = cause_notification(&ana);
        let responded = Instant::now();
        assert_eq!(stream.event().1["data"]["campaign_id"], json!(campaign));
        times.push(responded.elapsed());
    }
    assert_within_a_second(&times);
}
