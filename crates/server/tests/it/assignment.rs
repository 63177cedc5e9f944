//! Mass assignment: no route sets a server-owned field from a request body, and no response contains a secret.

use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::matrix::{RouteInput, label, row};

/// Marker values: an id, a hash and a day that only these tests write.
const ID: &str = "0badc0de-0bad-7bad-8bad-0badc0de0bad";
const HASH: &str = "deadbeefdeadbeefdeadbeefdeadbeef";
const DAY: &str = "2001-02-03";

/// Every server-owned field with a marker value. Account ids name the foreign user's account.
fn server_owned_fields(foreign: &User<'_>) -> Map<String, Value> {
    let day = format!("{DAY}T04:05:06.000Z");
    let mut fields = Map::new();
    for name in ["accountId", "account_id"] {
        fields.insert(name.into(), json!(foreign.account));
    }
    for name in ["id", "user_id", "owner_id", "created_by"] {
        fields.insert(name.into(), json!(ID));
    }
    for name in [
        "created_at",
        "updated_at",
        "deleted_at",
        "executed_at",
        "completed_at",
        "paused_at",
        "retry_scheduled_at",
        "opted_out_at",
        "last_used_at",
        "last_active_at",
        "expires_at",
        "read_at",
    ] {
        fields.insert(name.into(), json!(day));
    }
    for name in [
        "meta_template_id",
        "rejection_reason",
        "rejection_recommendation",
        "quality",
        "quality_score",
        "correct_category",
        "slug",
        "key_hash",
        "key_prefix",
        "key_hint",
        "full_key",
        "token_hash",
        "secret",
        "token",
        "wa_user_id",
        "wa_message_id",
        "pause_reason",
    ] {
        fields.insert(name.into(), json!(HASH));
    }
    let further = json!({
        "status": "completed", "meta_status": "approved", "plan": "scale", "role": "owner", "is_admin": true,
        "is_support": true, "total_recipients": 7777, "simulated": true, "quota": 7777, "members": 7777,
        "__proto__": { "role": "owner" }, "constructor": { "role": "owner" },
    });
    fields.extend(further.as_object().unwrap().clone());
    fields
}

/// The tables that have a row with this text.
fn tables_with_text(server: &Server, needle: &str) -> Vec<String> {
    let tables = "SELECT quote_ident(table_name) FROM information_schema.tables
      WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
        AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)
        AND table_name <> '__diesel_schema_migrations'";
    let names = server.db.rows(tables).into_iter().map(|mut row| row.remove(0).unwrap());
    names
        .filter(|name| {
            server
                .db
                .count(&format!("FROM {name} t WHERE t::text LIKE '%{needle}%'"))
                > 0
        })
        .collect()
}

/// Asserts that the response contains no hash, no token and no marker value.
#[track_caller]
fn assert_no_secret(route: &str, reply: &Reply) {
    for secret in [ID, HASH, DAY, "key_hash", "token_hash", "access_token", "7777"] {
        let is_leaked = reply.text.contains(secret);
        // A 422 may name a missing field.
        assert!(!is_leaked || reply.status == 422, "{route}: {}", reply.text);
    }
}

/// Adds the server-owned fields to a valid body. The body's own fields and `extra` win.
fn with_server_owned_fields(body: &str, server_owned: &Map<String, Value>, extra: Value) -> Value {
    let mut merged = server_owned.clone();
    merged.extend(
        serde_json::from_str::<Value>(body)
            .unwrap()
            .as_object()
            .unwrap()
            .clone(),
    );
    merged.extend(extra.as_object().unwrap().clone());
    Value::Object(merged)
}

/// Creates one resource for each path prefix. Returns prefix and id.
fn create_resources(ana: &User<'_>) -> Vec<(&'static str, String)> {
    vec![
        // A contact of its own: the other routes still find theirs after this one is erased.
        ("/api/contacts/{id}/erase", ana.contact("Apagado", "+5511962222222")),
        ("/api/contacts/", ana.contact("Contato", "+5511961111111")),
        ("/api/templates/", ana.template("own", "Oi", &[])),
        ("/api/whatsapp/profiles/", ana.profile()),
        ("/api/campaigns/", ana.campaign(json!({ "name": "Minha" }))),
    ]
}

fn routes_with_json_body() -> impl Iterator<Item = (&'static RouteSpec, &'static str)> {
    // A platform administrator may set nearly every field: administration.rs tests those routes.
    let routes = TABLE.iter().filter(|spec| spec.access != Access::Administrator);
    routes.filter_map(|spec| match row(spec) {
        RouteInput::Json(body) => Some((spec, *body)),
        _ => None,
    })
}

#[test]
fn request_bodies_cannot_set_server_fields_on_any_route() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let admin = server.member(&ana.account, "admin");
    let (resources, server_owned) = (create_resources(&ana), server_owned_fields(&bia));
    api_keys::create_key(&ana);
    let count = |table: &str| {
        let account = &bia.account;
        server.db.count(&format!("FROM {table} WHERE account_id = '{account}'"))
    };
    let mut tried = 0;
    for (spec, body) in routes_with_json_body() {
        let resource = resources.iter().find(|(prefix, _)| spec.path.starts_with(prefix));
        let path = spec.path.replace("{id}", resource.map_or(ID, |(_, id)| id));
        let extra = match spec.path {
            // Here `account_id` is the route's own input.
            "/api/accounts/switch" => json!({ "account_id": ana.account }),
            _ => json!({}),
        };
        let body = with_server_owned_fields(body, &server_owned, extra);
        let reply = admin.request(spec.method.as_str(), &path).json(&body).send();
        assert!(
            // 400: the resource's state does not allow the action, for example a schedule without a time.
            [200, 201, 202, 400, 404, 422].contains(&reply.status),
            "{}: {reply:?}",
            label(spec)
        );
        assert_no_secret(&label(spec), &reply);
        tried += 1;
    }
    assert!(tried >= 12, "{tried}");
    server.db.wait_for_outbox();
    for needle in [ID, HASH, DAY, "7777"] {
        assert_eq!(tables_with_text(&server, needle), Vec::<String>::new(), "{needle}");
    }
    for table in [
        "contacts",
        "tags",
        "message_templates",
        "campaigns",
        "whatsapp_profiles",
        "api_keys",
    ] {
        assert_eq!(count(table), 0, "{table}");
    }
    assert_eq!(count("account_users"), 1);
    assert_states_unchanged(&server, &ana, &admin);
}

/// Asserts that the server alone set every status, count, plan and role.
fn assert_states_unchanged(server: &Server, ana: &User<'_>, admin: &User<'_>) {
    let all = |column: &str, table: &str| {
        server
            .db
            .text(&format!("SELECT string_agg(DISTINCT {column}::text, ',') FROM {table}"))
    };
    assert_eq!(all("status", "campaigns"), "draft");
    assert_eq!(all("total_recipients", "campaigns"), "0");
    assert_eq!(all("simulated", "campaigns"), "false");
    assert_eq!(all("status", "accounts"), "active");
    // `growth` comes from the plan change, a valid body of its own route.
    assert_eq!(all("plan", "accounts"), "free,growth");
    let role = format!(
        "account_users WHERE user_id = '{}' AND account_id = '{}'",
        admin.id, ana.account
    );
    assert_eq!(all("role", &role), "admin");
    let submitted = ["draft", "draft,pending", "pending", "approved,draft", "approved"];
    let statuses = all("meta_status", "message_templates");
    assert!(submitted.contains(&statuses.as_str()), "{statuses}");
    let approved = "FROM message_templates WHERE meta_status = 'approved' AND meta_template_id IS NULL";
    assert_eq!(server.db.count(approved), 0, "approved without a review by WhatsApp");
}

#[test]
fn reads_return_no_hash_and_no_token() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    let resources = create_resources(&ana);
    let hash = server.db.text("SELECT encode(key_hash, 'hex') FROM api_key_hashes");
    // The OpenAPI document names secret fields, but contains no secret.
    for spec in TABLE
        .iter()
        .filter(|spec| spec.method == "GET" && spec.path.starts_with("/api") && spec.path != "/api/openapi.json")
    {
        let resource = resources.iter().find(|(prefix, _)| spec.path.starts_with(prefix));
        let path = spec.path.replace("{id}", resource.map_or(ID, |(_, id)| id));
        let reply = ana.get(&path);
        for secret in [
            &key,
            &hash,
            &ana.token,
            "EAAG-token",
            "key_hash",
            "access_token",
            "password",
        ] {
            assert!(!reply.text.contains(secret.trim()), "{}: {secret}", label(spec));
        }
    }
}

#[test]
fn server_field_of_wrong_type_in_body_is_ignored() {
    let server = Server::new();
    let ana = server.owner();
    for wrong_type in [
        json!(null),
        json!([]),
        json!({ "$ne": 1 }),
        json!(-1),
        json!("'; DROP TABLE tags; --"),
    ] {
        let id = Uuid::now_v7().to_string();
        let body = json!({ "name": id, "id": wrong_type, "account_id": wrong_type, "status": wrong_type,
            "deleted_at": wrong_type });
        let made = ana.post("/api/tags", body.clone()).created();
        assert_eq!(text(&made["name"]), id);
        let campaign = ana.campaign(json!({ "name": "C" }));
        let changed = ana.put(&format!("/api/campaigns/{campaign}"), body).ok();
        assert_eq!(
            (&changed["id"], &changed["status"]),
            (&json!(campaign), &json!("draft"))
        );
    }
}
