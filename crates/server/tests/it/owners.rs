//! The first owner of an account that a platform administrator created. The administrator invites the owner, but only
//! while the account has none.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::admin::{Browser, ROOT};
use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text};

/// Creates an account with an invite to its owner. Returns the account's id and the invite.
fn create_account(root: &User<'_>, email: &str) -> (String, Value) {
    let body = json!({ "name": "Padaria Sol", "plan": "growth", "owner_email": email });
    let account = root.post("/api/admin/accounts", body).created();
    (text(&account["id"]), account["owner_invite"].clone())
}

fn accept(user: &User<'_>, invite: &Value) -> Reply {
    user.post("/api/auth/accept-invite", json!({ "token": invite["token"] }))
}

#[test]
fn invited_first_owner_works_in_the_account() {
    let server = Server::new();
    let root = server.root();
    let (id, invite) = create_account(&root, " Dona@example.com ");
    assert_eq!(
        (&invite["email"], &invite["role"], &invite["status"]),
        (&json!("Dona@example.com"), &json!("owner"), &json!("pending"))
    );
    assert!(text(&invite["accept_url"]).ends_with(&text(&invite["token"])));
    // Another address cannot accept the invite.
    let stranger = server.user(Uuid::new_v4(), "outra@example.com");
    accept(&stranger, &invite).refused(403, "FORBIDDEN");
    let mut dona = server.user(Uuid::new_v4(), "dona@EXAMPLE.com");
    let joined = accept(&dona, &invite).ok();
    assert_eq!((&joined["account_id"], &joined["role"]), (&json!(id), &json!("owner")));
    accept(&dona, &invite).refused(404, "NOT_FOUND");
    // She has the rights of an owner who created an account.
    dona.account = id.clone();
    dona.post("/api/tags", json!({ "name": "vip" })).created();
    dona.post(
        "/api/team/invites",
        json!({ "email": "socia@example.com", "role": "owner" }),
    )
    .created();
    let shown = root.get(&format!("/api/admin/accounts/{id}")).ok();
    assert_eq!(
        (&shown["users"][0]["role"], &shown["plan"]),
        (&json!("owner"), &json!("growth"))
    );
    // The audit entry names the new member and the inviter.
    let logs = dona.get("/api/audit-logs?entityType=account_user").ok();
    let entry = &logs["logs"][0];
    assert_eq!((&logs["total"], &entry["user_id"]), (&json!(1), &json!(dona.id)));
    let changes = &entry["changes"];
    assert_eq!(
        (&changes["role"], &changes["invited_by"], &changes["invited_by_email"]),
        (&json!("owner"), &json!(root.id), &json!(ROOT))
    );
    // An administrator cannot invite a second owner.
    let path = format!("/api/admin/accounts/{id}");
    let second = root.put(&path, json!({ "owner_email": "outra@example.com", "name": "Nunca" }));
    assert_eq!(second.invalid(), ["owner_email"]);
    assert_eq!(root.get(&path).ok()["name"], "Padaria Sol");
}

#[test]
fn replaced_owner_invite_makes_the_old_one_void() {
    let server = Server::new();
    let root = server.root();
    let (id, lost) = create_account(&root, "errada@example.com");
    let path = format!("/api/admin/accounts/{id}");
    let again = root.put(&path, json!({ "owner_email": "dona@example.com" })).ok();
    let invite = &again["owner_invite"];
    let wrong = server.user(Uuid::new_v4(), "errada@example.com");
    accept(&wrong, &lost).refused(404, "NOT_FOUND");
    let dona = server.user(Uuid::new_v4(), "dona@example.com");
    accept(&dona, invite).ok();
    let open = "FROM team_invites WHERE status = 'pending'";
    assert_eq!(server.db.count(open), 0);
    // Without the field the response has no invite, so the token is shown once.
    assert_eq!(root.put(&path, json!({ "name": "Sol" })).ok().get("owner_invite"), None);
    let plain = root
        .post("/api/admin/accounts", json!({ "name": "x", "owner_email": "" }))
        .created();
    assert_eq!(plain.get("owner_invite"), None);
    assert_eq!(
        root.post("/api/admin/accounts", json!({ "name": "x", "owner_email": "x" }))
            .invalid(),
        ["owner_email"]
    );
    assert!(!server.log().contains(&text(&invite["token"])));
}

/// In support mode a platform administrator has the role admin of the account, which cannot invite an owner.
#[test]
fn support_mode_cannot_invite_an_owner() {
    let server = Server::new();
    let (id, _) = create_account(&server.root(), "dona@example.com");
    let browser = Browser::new(server.root());
    browser.support(&id);
    let owner = json!({ "email": "outra@example.com", "role": "owner" });
    browser.post("/api/team/invites", owner).refused(401, "AUTH_ERROR");
    let invites = browser.get("/api/team/invites").ok();
    assert_eq!(
        invites["data"][0]["email"], "dona@example.com",
        "an admin can list the invite and revoke it"
    );
    let revoke = browser.request(
        "DELETE",
        &format!("/api/team/invites/{}", text(&invites["data"][0]["id"])),
    );
    browser.send(revoke).no_content();
    assert_eq!(server.db.count("FROM team_invites WHERE status = 'revoked'"), 1);
}
