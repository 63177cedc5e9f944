//! The demo account for the product's main job, and a large account for load. Seeding is idempotent.
//!
//! User, account and API key are written to the database, because only an owner or administrator could create them. The
//! rest goes through the public API, so that it is validated, encrypted and counted as usual.

use anyhow::{Context, Result, bail};
use postgres::types::ToSql;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::{Client, JsonResponse};
use crate::large_account::LargeAccount;
use crate::services::postgres::connect;
use crate::state::{Env, value};
use crate::token;
use crate::{paths, process};

pub const EMAIL: &str = "demo@recado.example";
pub const NAME: &str = "Demonstração";
pub const ADMIN: &str = "admin@recado.example";
pub const ACCOUNT: &str = "0193a6e0-0000-7000-8000-000000000001";
const LARGE_ACCOUNT: &str = "0193a6e0-0000-7000-8000-000000000003";
const KEY_ID: &str = "0193a6e0-0000-7000-8000-000000000002";

const CONTACTS: &[(&str, &str, &str)] = &[
    ("Ana Souza", "+5511987650001", "ana@example.com"),
    ("Bruno Lima", "+5521987650002", "bruno@example.com"),
    ("Carla Dias", "+5531987650003", "carla@example.com"),
];

/// The demo account's owner, also the default user of `cargo xtask token`.
pub fn user() -> String {
    token::user_id(EMAIL)
}

/// Creates the large account for the owner of the demo account.
pub fn seed_large(database: &str, messages: u64) -> Result<()> {
    process::run(paths::cargo().args(["build", "--bin", "recado"]), "cargo build")?;
    let user = user();
    rows(
        database,
        &[
            (
                "INSERT INTO users (id, email, name) VALUES ($1::text::uuid, $2, $3)",
                &[&user, &EMAIL, &NAME],
            ),
            (
                "INSERT INTO accounts (id, name, slug, plan, status)
                 VALUES ($1::text::uuid, 'Loja Grande', 'loja-grande', 'scale', 'active')",
                &[&LARGE_ACCOUNT],
            ),
            (
                "INSERT INTO account_slugs (slug, account_id) VALUES ('loja-grande', $1::text::uuid)",
                &[&LARGE_ACCOUNT],
            ),
            (
                "INSERT INTO account_users (account_id, user_id, role) VALUES ($1::text::uuid, $2::text::uuid, 'owner')",
                &[&LARGE_ACCOUNT, &user],
            ),
        ],
    )?;
    let large = LargeAccount {
        database,
        account: LARGE_ACCOUNT,
        messages,
        recado: paths::built("recado"),
    };
    if large.is_filled()? {
        println!("the account Loja Grande already exists");
        return Ok(());
    }
    large.fill()?;
    println!("X-Account-Id: {LARGE_ACCOUNT}");
    Ok(())
}

/// Seeds the server that this environment describes.
pub fn seed(env: &Env) -> Result<()> {
    println!("seed: account Loja Exemplo");
    account(value(env, "DATABASE_URL")?)?;
    println!("seed: API key");
    api_key(value(env, "DATABASE_URL")?, value(env, "DEMO_API_KEY")?)?;

    let session = token::sign(value(env, "SESSION_JWT_SECRET")?, &user(), EMAIL, Some(NAME), 1)?;
    let headers = vec![
        ("authorization", format!("Bearer {session}")),
        ("x-account-id", ACCOUNT.to_owned()),
    ];
    let client = Client::new(value(env, "PUBLIC_URL")?, headers);
    println!("seed: WhatsApp number");
    profile(&client, value(env, "WHATSAPP_ACCESS_TOKEN")?)?;
    println!("seed: tag");
    create(&client, "/api/tags", &json!({ "name": "Clientes" }))?;
    for (name, phone, email) in CONTACTS {
        println!("seed: {name}");
        create(
            &client,
            "/api/contacts",
            &json!({ "name": name, "phone": phone, "email": email }),
        )?;
    }
    Ok(())
}

fn account(database: &str) -> Result<()> {
    let user = user();
    rows(
        database,
        &[
            (
                "INSERT INTO users (id, email, name) VALUES ($1::text::uuid, $2, $3)",
                &[&user, &EMAIL, &NAME],
            ),
            (
                "INSERT INTO accounts (id, name, slug, plan, status)
                 VALUES ($1::text::uuid, 'Loja Exemplo', 'loja-exemplo', 'growth', 'active')",
                &[&ACCOUNT],
            ),
            (
                "INSERT INTO account_slugs (slug, account_id) VALUES ('loja-exemplo', $1::text::uuid)",
                &[&ACCOUNT],
            ),
            (
                "INSERT INTO account_users (account_id, user_id, role) VALUES ($1::text::uuid, $2::text::uuid, 'owner')",
                &[&ACCOUNT, &user],
            ),
        ],
    )
}

fn api_key(database: &str, key: &str) -> Result<()> {
    let prefix: String = key.chars().take(12).collect();
    let hint: String = key.chars().skip(key.chars().count().saturating_sub(4)).collect();
    let hash = Sha256::digest(key.as_bytes()).to_vec();
    let user = user();
    rows(
        database,
        &[
            (
                "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
                 VALUES ($1::text::uuid, $2::text::uuid, 'Demo', $3, $4, $5::text::uuid)",
                &[&ACCOUNT, &KEY_ID, &prefix, &hint, &user],
            ),
            (
                "INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
                 VALUES ($1, $2::text::uuid, $3::text::uuid, $4::text::uuid)",
                &[&hash, &ACCOUNT, &KEY_ID, &user],
            ),
        ],
    )
}

/// Inserts the missing rows in one transaction.
fn rows(database: &str, statements: &[(&str, &[&(dyn ToSql + Sync)])]) -> Result<()> {
    let mut client = connect(database)?;
    let mut add = || -> Result<(), postgres::Error> {
        let mut transaction = client.transaction()?;
        for (insert, values) in statements {
            transaction.execute(&format!("{insert} ON CONFLICT DO NOTHING"), values)?;
        }
        transaction.commit()
    };
    add().context("cannot seed the database")
}

/// Connects the demo WhatsApp number unless a number exists.
fn profile(client: &Client, access_token: &str) -> Result<()> {
    let path = "/api/whatsapp/profiles";
    let list = client.get(path)?;
    if list.status != 200 {
        return refused(path, &list);
    }
    if !is_empty_list(&list.body) {
        return Ok(());
    }
    let profile = json!({
        "name": "Loja Exemplo",
        "phone_number_id": "106540352242922",
        "waba_id": "102290129340398",
        "access_token": access_token,
    });
    create(client, path, &profile)
}

/// Creates a resource unless it exists.
fn create(client: &Client, path: &str, body: &Value) -> Result<()> {
    let reply = client.post(path, body)?;
    let exists = reply.status == 422 && is_taken(&reply.body);
    if (200..300).contains(&reply.status) || exists {
        Ok(())
    } else {
        refused(path, &reply)
    }
}

fn refused(path: &str, reply: &JsonResponse) -> Result<()> {
    bail!("{path} responded with {}: {}", reply.status, reply.body)
}

/// Whether a list response is empty. Some lists are wrapped once, some twice.
fn is_empty_list(body: &Value) -> bool {
    let inner = body.pointer("/data/data").or_else(|| body.get("data"));
    inner.and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn is_taken(body: &Value) -> bool {
    let text = body.to_string().to_lowercase();
    ["taken", "already", "exists", "in use"]
        .iter()
        .any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_reads_lists_in_both_shapes() {
        assert!(is_empty_list(&json!({ "data": [] })));
        assert!(is_empty_list(&json!({ "data": { "data": [], "hasMore": false } })));
        assert!(!is_empty_list(&json!({ "data": [{}] })));
        assert!(!is_empty_list(&json!({ "data": { "data": [{}] } })));
    }

    #[test]
    fn seed_accepts_only_a_conflict_as_existing() {
        assert!(is_taken(
            &json!({ "error": { "details": { "fields": { "name": ["is already taken"] } } } })
        ));
        assert!(!is_taken(
            &json!({ "error": { "details": { "fields": { "phone": ["is not a phone number"] } } } })
        ));
    }
}
