//! Deletion of an account: every row and file of it is removed, and those of other accounts stay.

use std::collections::BTreeMap;

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::json;
use uuid::Uuid;

use crate::api_keys;
use crate::billing::{card_order, subscribe, wait_for_status};
use crate::harness::admin::Browser;
use crate::harness::media::PNG;
use crate::harness::users::User;
use crate::harness::{DEADLINE, Server, until};
use crate::matrix::create_resources;

/// The number of rows that name the account, for every table that has any.
fn count_rows_by_table(server: &Server, account: &str) -> BTreeMap<String, String> {
    let counts = server.db.text(&format!(
        "SELECT string_agg(format('SELECT %L AS name, count(*)::text AS n FROM %I t WHERE t::text LIKE %L',
           table_name, table_name, '%{account}%'), ' UNION ALL ')
         FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
           AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)"
    ));
    let rows = server
        .db
        .rows(&format!("SELECT name, n FROM ({counts}) c WHERE n <> '0'"));
    let pair = |row: &Vec<Option<String>>| (row[0].clone().unwrap(), row[1].clone().unwrap());
    rows.iter().map(pair).collect()
}

/// Creates an account with rows in nearly every table, and an API key of it.
fn create_full_account<'a>(server: &'a Server) -> (User<'a>, String) {
    let ana = server.owner();
    create_resources(&ana);
    ana.contacts(5);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    ana.upload("a.png", PNG).ok();
    subscribe(&ana, card_order("4111 1111 1111 1111", "123")).created();
    wait_for_status(&ana, "active");
    let key = api_keys::create_key(&ana);
    ana.request("POST", "/api/tags")
        .header("Idempotency-Key", "k")
        .json(&json!({ "name": "once" }))
        .send()
        .created();
    assert!(server.payment.wait_idle(DEADLINE));
    until("the gateway events are applied", || {
        server.db.count("FROM gateway_events WHERE due_at IS NOT NULL") == 0
    });
    server.db.wait_for_outbox();
    (ana, key)
}

fn count_gateway_cancellations(server: &Server) -> usize {
    let entries = server.payment.ledger().into_iter();
    entries
        .filter(|entry| entry.method == "DELETE" && entry.path.contains("/subscriptions/"))
        .count()
}

#[test]
fn account_deletion_removes_all_its_rows_and_no_others() {
    let server = Server::new();
    let root = server.root();
    let (ana, key) = create_full_account(&server);
    let (bia, bia_key) = create_full_account(&server);
    assert!(
        count_rows_by_table(&server, &ana.account).len() > 25,
        "{:?}",
        count_rows_by_table(&server, &ana.account)
    );
    let browser = Browser::new(server.root());
    browser.support(&ana.account);
    server.db.wait_for_outbox();
    let (bia_rows, files) = (count_rows_by_table(&server, &bia.account), server.media.files());
    let path = format!("/api/admin/accounts/{}", ana.account);
    root.delete(&path).no_content();
    // Entries of the platform audit log remain: support mode and the deletion.
    let entries = BTreeMap::from([("platform_audit".to_owned(), "2".to_owned())]);
    assert_eq!(count_rows_by_table(&server, &ana.account), entries);
    assert_eq!(count_rows_by_table(&server, &bia.account), bia_rows);
    let bia_files: Vec<String> = files.into_iter().filter(|file| file.contains(&bia.account)).collect();
    assert_eq!((server.media.files(), bia_files.len()), (bia_files.clone(), 4));
    assert!(!server.media.path().join(&ana.account).exists());
    assert_eq!(count_gateway_cancellations(&server), 1);
    // Sessions, API keys and support mode of the account are refused.
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
    server.get("/api/contacts").bearer(&bia_key).send().ok();
    assert_eq!(wait_for_status(&bia, "active")["plan"], "starter");
    // The slug is free again, and a former member can create a new account.
    let again = ana.post("/api/accounts", json!({ "name": "Loja" })).created();
    assert_eq!(again["account"]["slug"], "loja");
}

#[test]
fn account_deletion_retries_failed_gateway_cancellation() {
    let server = Server::new();
    let root = server.root();
    let (ana, _) = create_full_account(&server);
    let broken = FaultKind::status(500, json!({ "error": "x" }));
    server
        .payment
        .script(vec![Fault::new(broken).on("DELETE", "/subscriptions")]);
    root.delete(&format!("/api/admin/accounts/{}", ana.account))
        .no_content();
    let mut left =
        BTreeMap::from(["gateway_cancellations", "platform_audit"].map(|table| (table.to_owned(), "1".to_owned())));
    assert_eq!(count_rows_by_table(&server, &ana.account), left);
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    left.remove("gateway_cancellations");
    until("the subscription is cancelled", || {
        count_rows_by_table(&server, &ana.account) == left
    });
    assert_eq!(count_gateway_cancellations(&server), 2);
}

#[test]
fn interrupted_account_deletion_is_completed_by_next_server() {
    let server = Server::new();
    let (ana, _) = create_full_account(&server);
    let id = &ana.account;
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended', deleting_at = now() WHERE id = '{id}';
         INSERT INTO account_deletions (account_id, due_at) VALUES ('{id}', now())"
    ));
    server
        .root()
        .get(&format!("/api/admin/accounts/{id}"))
        .refused(404, "NOT_FOUND");
    until("the account is deleted", || {
        server.db.count(&format!("FROM accounts WHERE id = '{id}'")) == 0
    });
    until("no deletion is pending", || {
        server.db.count("FROM account_deletions") == 0
    });
    assert_eq!(server.media.files(), Vec::<String>::new());
}
