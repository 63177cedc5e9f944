//! Members: the list, role changes, removals, and how soon each change applies.

use std::time::Instant;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Server, assert_within_a_second, text, until};

fn path(user: Uuid) -> String {
    format!("/api/team/members/{user}")
}

fn set_role(actor: &User<'_>, target: Uuid, role: &str) -> Reply {
    actor.put(&path(target), json!({ "role": role }))
}

fn remove(actor: &User<'_>, target: Uuid) -> Reply {
    actor.delete(&path(target))
}

fn role(server: &Server, account: &str, user: Uuid) -> String {
    server.db.text(&format!(
        "SELECT role FROM account_users WHERE account_id = '{account}' AND user_id = '{user}'"
    ))
}

/// The audit entries about memberships, oldest first, as `action user entity changes address`.
pub fn membership_audit(server: &Server, account: &str) -> Vec<String> {
    server.db.wait_for_outbox();
    let rows = server.db.rows(&format!(
        "SELECT concat_ws(' ', action, user_id, entity_id, changes, ip_address) FROM audit_logs
         WHERE account_id = '{account}' AND entity_type = 'account_user' ORDER BY created_at, id"
    ));
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
}

#[test]
fn member_list_is_oldest_first_for_every_role() {
    let server = Server::new();
    let (ana, other_owner) = (server.owner(), server.owner());
    let mut expected = vec![(ana.id, "owner")];
    for role in ["admin", "member", "viewer"] {
        expected.push((server.member(&ana.account, role).id, role));
    }
    server.member(&other_owner.account, "viewer");
    let viewer = server.member(&ana.account, "viewer");
    expected.push((viewer.id, "viewer"));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = viewer.get(&format!("/api/team/members?limit=2&cursor={cursor}")).ok();
        let members = page["data"].as_array().unwrap().clone();
        assert!(members.len() <= 2);
        seen.extend(members);
        assert_eq!(page["hasMore"], json!(!page["nextCursor"].is_null()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    let ids = |member: &Value| (text(&member["user_id"]), text(&member["role"]));
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, role)| (id.to_string(), (*role).to_owned()))
        .collect();
    assert_eq!(seen.iter().map(ids).collect::<Vec<_>>(), expected);
    let fields = ["user_id", "email", "name", "role", "last_active_at", "created_at"];
    let first = seen[0].as_object().unwrap();
    assert!(
        first.len() == fields.len() && fields.iter().all(|field| first.contains_key(*field)),
        "{first:?}"
    );
    assert_eq!(
        (&first["email"], &first["last_active_at"]),
        (&json!(ana.email), &json!(null))
    );
    for wrong in ["cursor=x", "cursor=7a7a", "limit=x"] {
        let field = wrong.split('=').next().unwrap();
        assert_eq!(viewer.get(&format!("/api/team/members?{wrong}")).invalid(), [field]);
    }
}

#[test]
fn role_change_and_removal_are_audited() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "member");
    let changed = set_role(&ana, bia.id, "admin").ok();
    assert_eq!(
        (&changed["user_id"], &changed["role"]),
        (&json!(bia.id), &json!("admin"))
    );
    assert_eq!(changed["email"], json!(bia.email));
    // Setting the current role changes nothing and writes no audit entry.
    set_role(&ana, bia.id, "admin").ok();
    set_role(&ana, bia.id, "viewer").ok();
    remove(&ana, bia.id).no_content();
    remove(&ana, bia.id).refused(404, "NOT_FOUND");
    set_role(&ana, bia.id, "admin").refused(404, "NOT_FOUND");
    let (actor, target) = (ana.id, bia.id);
    let expected = [
        format!(r#"update {actor} {target} {{"role": "admin", "previousRole": "member"}} 127.0.0.1"#),
        format!(r#"update {actor} {target} {{"role": "viewer", "previousRole": "admin"}} 127.0.0.1"#),
        format!(r#"delete {actor} {target} {{"role": "viewer"}} 127.0.0.1"#),
    ];
    assert_eq!(membership_audit(&server, &ana.account), expected);
}

#[test]
fn only_an_owner_can_make_or_change_an_owner() {
    let server = Server::new();
    let ana = server.owner();
    let (bia, caio) = (
        server.member(&ana.account, "admin"),
        server.member(&ana.account, "member"),
    );
    set_role(&bia, caio.id, "owner").refused(401, "AUTH_ERROR");
    set_role(&bia, bia.id, "owner").refused(401, "AUTH_ERROR");
    for role in ["owner", "admin", "viewer"] {
        set_role(&bia, ana.id, role).refused(401, "AUTH_ERROR");
    }
    remove(&bia, ana.id).refused(401, "AUTH_ERROR");
    // An admin can change and remove all other members.
    set_role(&bia, caio.id, "admin").ok();
    set_role(&caio, bia.id, "viewer").ok();
    remove(&caio, bia.id).no_content();
    set_role(&ana, caio.id, "owner").ok();
    set_role(&caio, ana.id, "admin").ok();
    assert_eq!(role(&server, &ana.account, ana.id), "admin");
    assert_eq!(role(&server, &ana.account, caio.id), "owner");
}

#[test]
fn last_owner_cannot_be_removed_or_demoted() {
    let server = Server::new();
    let ana = server.owner();
    let bia = server.member(&ana.account, "admin");
    for role in ["admin", "member", "viewer"] {
        assert_eq!(set_role(&ana, ana.id, role).invalid(), ["role"]);
    }
    assert_eq!(remove(&ana, ana.id).invalid(), ["user_id"]);
    set_role(&ana, ana.id, "owner").ok();
    set_role(&ana, bia.id, "owner").ok();
    remove(&ana, ana.id).no_content();
    assert_eq!(remove(&bia, bia.id).invalid(), ["user_id"]);
    assert_eq!(server.db.count("FROM account_users WHERE role = 'owner'"), 1);
}

#[test]
fn two_owners_demoting_each_other_leave_one() {
    let server = Server::new();
    for round in 0..8 {
        let ana = server.owner();
        let bia = server.member(&ana.account, "owner");
        let calls: Vec<Request> = [(&ana, bia.id), (&bia, ana.id)]
            .into_iter()
            .map(|(actor, target)| match round % 2 {
                0 => actor.request("PUT", &path(target)).json(&json!({ "role": "member" })),
                _ => actor.request("DELETE", &path(target)),
            })
            .collect();
        let mut statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = calls
                .iter()
                .map(|call| scope.spawn(|| call.clone().send().status))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        statuses.sort_unstable();
        // The second caller is already demoted or removed.
        let done = if round % 2 == 0 { 200 } else { 204 };
        assert_eq!(statuses, [done, 401], "round {round}");
        let owners = format!(
            "FROM account_users WHERE account_id = '{}' AND role = 'owner'",
            ana.account
        );
        assert_eq!(server.db.count(&owners), 1, "round {round}");
    }
}

#[test]
fn non_member_target_is_not_found() {
    let server = Server::new();
    let (ana, foreign) = (server.owner(), server.owner());
    let admin = server.member(&ana.account, "admin");
    for actor in [&ana, &admin] {
        for target in [foreign.id, Uuid::now_v7()] {
            set_role(actor, target, "viewer").refused(404, "NOT_FOUND");
            remove(actor, target).refused(404, "NOT_FOUND");
        }
    }
    assert_eq!(role(&server, &foreign.account, foreign.id), "owner");
    // An admin cannot make an owner: that check precedes the lookup of the target.
    for target in [foreign.id, Uuid::now_v7()] {
        set_role(&ana, target, "owner").refused(404, "NOT_FOUND");
        set_role(&admin, target, "owner").refused(401, "AUTH_ERROR");
    }
    for body in [
        json!({}),
        json!({ "role": null }),
        json!({ "role": "king" }),
        json!({ "role": 7 }),
    ] {
        // An invalid body is reported before the lookup of the target.
        assert_eq!(ana.put(&path(foreign.id), body).invalid(), ["role"]);
    }
    assert_eq!(membership_audit(&server, &ana.account), Vec::<String>::new());
}

#[test]
fn removal_from_one_account_preserves_other_memberships() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    server.db.run(&format!(
        "INSERT INTO account_users (account_id, user_id, role) VALUES ('{}', '{}', 'admin')",
        ana.account, bia.id
    ));
    remove(&ana, bia.id).no_content();
    assert_eq!(role(&server, &bia.account, bia.id), "owner");
    bia.get("/api/contacts").ok();
}

/// Sends a request with `X-Account-Id`, so that the server caches the membership. Returns the status.
fn request_status(new_request: &dyn Fn(&str) -> Request, user: &User<'_>, path: &str) -> u16 {
    let request = new_request(path).bearer(&user.token);
    request.header("X-Account-Id", &user.account).send().status
}

#[test]
fn membership_change_reaches_other_servers_within_a_second() {
    let server = Server::new();
    let sibling = server.sibling();
    let on_first = |path: &str| server.request("GET", path);
    let on_second = |path: &str| sibling.request("GET", path);
    let (mut demotions, mut removals) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let ana = server.owner();
        let bia = server.member(&ana.account, "admin");
        let (managing, reading) = ("/api/team/invites", "/api/contacts");
        for path in [managing, reading] {
            assert_eq!(
                (
                    request_status(&on_first, &bia, path),
                    request_status(&on_second, &bia, path)
                ),
                (200, 200)
            );
        }
        set_role(&ana, bia.id, "member").ok();
        assert_eq!(request_status(&on_first, &bia, managing), 401, "round {round}: demoted");
        assert_eq!(
            request_status(&on_first, &bia, reading),
            200,
            "round {round}: still a member"
        );
        let began = Instant::now();
        until("the demotion applies on the second server", || {
            request_status(&on_second, &bia, managing) == 401
        });
        demotions.push(began.elapsed());

        assert_eq!(
            (
                request_status(&on_first, &bia, reading),
                request_status(&on_second, &bia, reading)
            ),
            (200, 200)
        );
        remove(&ana, bia.id).no_content();
        assert_eq!(request_status(&on_first, &bia, reading), 401, "round {round}: removed");
        let began = Instant::now();
        until("the removal applies on the second server", || {
            request_status(&on_second, &bia, reading) == 401
        });
        removals.push(began.elapsed());
    }
    for times in [demotions, removals] {
        assert_within_a_second(&times);
    }
}
