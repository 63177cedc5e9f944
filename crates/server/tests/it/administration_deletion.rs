//! The removal of an account: nothing of it is left anywhere, and nothing of anybody else's is touched.

use std::collections::BTreeMap;

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::json;
use uuid::Uuid;

use crate::api_keys;
use crate::billing::{becomes, card_order, subscribe};
use crate::harness::admin::Browser;
use crate::harness::media::PNG;
use crate::harness::users::User;
use crate::harness::{Server, until};
use crate::matrix::belongings;

/// How many rows of which table name the account, whatever the table is.
fn rows_of(server: &Server, account: &str) -> BTreeMap<String, String> {
    let counts = server.db.text(&format!(
        "SELECT string_agg(format('SELECT %L AS name, count(*)::text AS n FROM %I t WHERE t::text LIKE %L',
           table_name, table_name, '%{account}%'), ' UNION ALL ')
         FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    ));
    let rows = server
        .db
        .rows(&format!("SELECT name, n FROM ({counts}) c WHERE n <> '0'"));
    let pair = |row: &Vec<Option<String>>| (row[0].clone().unwrap(), row[1].clone().unwrap());
    rows.iter().map(pair).collect()
}

/// An account with something of everything.
fn furnished<'a>(server: &'a Server) -> (User<'a>, String) {
    let ana = server.owner();
    belongings(&ana);
    ana.contacts(5);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    ana.upload("a.png", PNG).ok();
    subscribe(&ana, card_order("4111 1111 1111 1111", "123")).created();
    becomes(&ana, "active");
    let key = api_keys::key(&ana);
    ana.request("POST", "/api/tags")
        .header("Idempotency-Key", "k")
        .json(&json!({ "name": "once" }))
        .send()
        .created();
    assert!(server.payment.wait_idle(std::time::Duration::from_secs(30)));
    until("the events are told", || {
        server.db.count("FROM gateway_events WHERE due_at IS NOT NULL") == 0
    });
    server.db.settles();
    (ana, key)
}

fn cancellations(server: &Server) -> usize {
    let entries = server.payment.ledger().into_iter();
    entries
        .filter(|entry| entry.method == "DELETE" && entry.path.contains("/subscriptions/"))
        .count()
}

#[test]
fn nothing_is_left_of_the_account_and_all_of_the_others() {
    let server = Server::new();
    let root = server.root();
    let (ana, key) = furnished(&server);
    let (bia, other_key) = furnished(&server);
    assert!(
        rows_of(&server, &ana.account).len() > 25,
        "{:?}",
        rows_of(&server, &ana.account)
    );
    let browser = Browser::new(server.root());
    browser.support(&ana.account);
    server.db.settles();
    let (theirs, files) = (rows_of(&server, &bia.account), server.media.files());
    let path = format!("/api/admin/accounts/{}", ana.account);
    root.delete(&path).gone();
    assert_eq!(rows_of(&server, &ana.account), BTreeMap::new());
    assert_eq!(rows_of(&server, &bia.account), theirs);
    let kept: Vec<String> = files
        .into_iter()
        .filter(|file| file.starts_with(&bia.account))
        .collect();
    assert_eq!((server.media.files(), kept.len()), (kept.clone(), 1));
    assert!(!server.media.path().join(&ana.account).exists());
    assert_eq!(cancellations(&server), 1);
    // Nobody finds it any more.
    ana.get("/api/contacts").refused(401, "AUTH_ERROR");
    server
        .get("/api/contacts")
        .bearer(&key)
        .send()
        .refused(401, "AUTH_ERROR");
    browser.get("/api/contacts").refused(401, "AUTH_ERROR");
    browser.stop().ok();
    root.get(&path).refused(404, "NOT_FOUND");
    root.delete(&path).refused(404, "NOT_FOUND");
    root.delete(&format!("/api/admin/accounts/{}", Uuid::now_v7()))
        .refused(404, "NOT_FOUND");
    bia.get("/api/contacts").ok();
    server.get("/api/contacts").bearer(&other_key).send().ok();
    assert_eq!(becomes(&bia, "active")["plan"], "starter");
    // Its slug is free, and whoever was in it may begin anew.
    let again = ana.post("/api/accounts", json!({ "name": "Loja" })).created();
    assert_eq!(again["account"]["slug"], "loja");
}

#[test]
fn a_gateway_that_is_silent_keeps_no_account_alive_and_is_asked_again() {
    let server = Server::new();
    let root = server.root();
    let (ana, _) = furnished(&server);
    let broken = FaultKind::status(500, json!({ "error": "x" }));
    server
        .payment
        .script(vec![Fault::new(broken).on("DELETE", "/subscriptions")]);
    root.delete(&format!("/api/admin/accounts/{}", ana.account)).gone();
    let left = BTreeMap::from([("gateway_cancellations".to_owned(), "1".to_owned())]);
    assert_eq!(rows_of(&server, &ana.account), left);
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    until("it is cancelled", || rows_of(&server, &ana.account).is_empty());
    assert_eq!(cancellations(&server), 2);
}

/// Whatever an earlier server began is finished by the next one.
#[test]
fn a_removal_that_was_begun_is_finished_by_whoever_comes_next() {
    let server = Server::new();
    let (ana, _) = furnished(&server);
    let id = &ana.account;
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended', deleting_at = now() WHERE id = '{id}';
         INSERT INTO account_deletions (account_id, due_at) VALUES ('{id}', now())"
    ));
    server
        .root()
        .get(&format!("/api/admin/accounts/{id}"))
        .refused(404, "NOT_FOUND");
    until("it is gone", || {
        server.db.count(&format!("FROM accounts WHERE id = '{id}'")) == 0
    });
    until("nothing is open", || server.db.count("FROM account_deletions") == 0);
    assert_eq!(server.media.files(), Vec::<String>::new());
}
