//! What nobody may set is not set, on any route that takes a body, and no answer holds what nobody may read.

use recado_server::routes::{Access, RouteSpec, TABLE};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::matrix::{Takes, label, row};

/// A wished id, hash and day that nothing else can have made.
const ID: &str = "0badc0de-0bad-7bad-8bad-0badc0de0bad";
const HASH: &str = "deadbeefdeadbeefdeadbeefdeadbeef";
const DAY: &str = "2001-02-03";

/// Every field that is the server's own, with a value that would show.
fn wishes(other: &User<'_>) -> Map<String, Value> {
    let day = format!("{DAY}T04:05:06.000Z");
    let mut wishes = Map::new();
    for name in ["accountId", "account_id"] {
        wishes.insert(name.into(), json!(other.account));
    }
    for name in ["id", "user_id", "owner_id", "created_by"] {
        wishes.insert(name.into(), json!(ID));
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
        wishes.insert(name.into(), json!(day));
    }
    for name in [
        "meta_template_id",
        "rejection_reason",
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
        wishes.insert(name.into(), json!(HASH));
    }
    let others = json!({
        "status": "completed", "meta_status": "approved", "plan": "scale", "role": "owner", "is_admin": true,
        "is_support": true, "total_recipients": 7777, "simulated": true, "quota": 7777, "members": 7777,
        "__proto__": { "role": "owner" }, "constructor": { "role": "owner" },
    });
    wishes.extend(others.as_object().unwrap().clone());
    wishes
}

/// Tables and how many of their rows hold a text.
fn holding(server: &Server, needle: &str) -> Vec<String> {
    let tables = "SELECT quote_ident(table_name) FROM information_schema.tables
      WHERE table_schema = 'public' AND table_type = 'BASE TABLE'";
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

/// No answer holds a hash, a token, or anything of these wishes.
#[track_caller]
fn clean(what: &str, reply: &Reply) {
    for secret in [ID, HASH, DAY, "key_hash", "token_hash", "access_token", "7777"] {
        let told = reply.text.contains(secret);
        // A refusal may name what is missing.
        assert!(!told || reply.status == 422, "{what}: {}", reply.text);
    }
}

fn with_wishes(body: &str, wishes: &Map<String, Value>, extra: Value) -> Value {
    let mut whole = wishes.clone();
    whole.extend(
        serde_json::from_str::<Value>(body)
            .unwrap()
            .as_object()
            .unwrap()
            .clone(),
    );
    whole.extend(extra.as_object().unwrap().clone());
    Value::Object(whole)
}

/// One thing of every kind that a path can name.
fn things(ana: &User<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("/api/contacts/", ana.contact("Contato", "+5511961111111")),
        ("/api/templates/", ana.template("own", "Oi", &[])),
        ("/api/whatsapp/profiles/", ana.profile()),
        ("/api/campaigns/", ana.campaign(json!({ "name": "Minha" }))),
    ]
}

fn bodies() -> impl Iterator<Item = (&'static RouteSpec, &'static str)> {
    // An administrator of the platform may set nearly everything: their routes have tests of their own.
    let routes = TABLE.iter().filter(|spec| spec.access != Access::Administrator);
    routes.filter_map(|spec| match row(spec) {
        Takes::Json(body) => Some((spec, *body)),
        _ => None,
    })
}

#[test]
fn nobody_sets_what_is_the_servers_on_any_route() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let admin = server.member(&ana.account, "admin");
    let (things, wishes) = (things(&ana), wishes(&bia));
    api_keys::key(&ana);
    let count = |table: &str| {
        let account = &bia.account;
        server.db.count(&format!("FROM {table} WHERE account_id = '{account}'"))
    };
    let mut tried = 0;
    for (spec, body) in bodies() {
        let thing = things.iter().find(|(prefix, _)| spec.path.starts_with(prefix));
        let path = spec.path.replace("{id}", thing.map_or(ID, |(_, id)| id));
        let extra = match spec.path {
            // Wishes that are this route's own input.
            "/api/accounts/switch" => json!({ "account_id": ana.account }),
            _ => json!({}),
        };
        let whole = with_wishes(body, &wishes, extra);
        let reply = admin.request(spec.method.as_str(), &path).json(&whole).send();
        assert!(
            // 400: what is not set leaves nothing that could be done, as with a schedule without its time.
            [200, 201, 400, 404, 422].contains(&reply.status),
            "{}: {reply:?}",
            label(spec)
        );
        clean(&label(spec), &reply);
        tried += 1;
    }
    assert!(tried >= 12, "{tried}");
    server.db.settles();
    for needle in [ID, HASH, DAY, "7777"] {
        assert_eq!(holding(&server, needle), Vec::<String>::new(), "{needle}");
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
    states_are_the_servers(&server, &ana, &admin);
}

/// The fields with a closed set of values are what the server makes of them.
fn states_are_the_servers(server: &Server, ana: &User<'_>, admin: &User<'_>) {
    let all = |column: &str, table: &str| {
        server
            .db
            .text(&format!("SELECT string_agg(DISTINCT {column}::text, ',') FROM {table}"))
    };
    assert_eq!(all("status", "campaigns"), "draft");
    assert_eq!(all("total_recipients", "campaigns"), "0");
    assert_eq!(all("simulated", "campaigns"), "false");
    assert_eq!(all("status", "accounts"), "active");
    // Growth: what the change of a plan was itself asked for.
    assert_eq!(all("plan", "accounts"), "free,growth");
    let role = format!(
        "account_users WHERE user_id = '{}' AND account_id = '{}'",
        admin.id, ana.account
    );
    assert_eq!(all("role", &role), "admin");
    let submitted = ["draft", "draft,pending", "pending", "approved,draft", "approved"];
    let found = all("meta_status", "message_templates");
    assert!(submitted.contains(&found.as_str()), "{found}");
    let approved = "FROM message_templates WHERE meta_status = 'approved' AND meta_template_id IS NULL";
    assert_eq!(server.db.count(approved), 0, "approved by nobody");
}

#[test]
fn reads_tell_no_hash_and_no_token() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::key(&ana);
    let things = things(&ana);
    let hash = server.db.text("SELECT encode(key_hash, 'hex') FROM api_key_hashes");
    // The reference names the fields that secrets are written to, and holds nobody's.
    for spec in TABLE
        .iter()
        .filter(|spec| spec.method == "GET" && spec.path.starts_with("/api") && spec.path != "/api/openapi.json")
    {
        let thing = things.iter().find(|(prefix, _)| spec.path.starts_with(prefix));
        let path = spec.path.replace("{id}", thing.map_or(ID, |(_, id)| id));
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
fn a_type_of_nonsense_for_a_field_of_the_server_is_ignored() {
    let server = Server::new();
    let ana = server.owner();
    for nonsense in [
        json!(null),
        json!([]),
        json!({ "$ne": 1 }),
        json!(-1),
        json!("'; DROP TABLE tags; --"),
    ] {
        let id = Uuid::now_v7().to_string();
        let body =
            json!({ "name": id, "id": nonsense, "account_id": nonsense, "status": nonsense, "deleted_at": nonsense });
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
