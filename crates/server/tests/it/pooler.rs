//! The server behind a real PgBouncer in transaction mode, and the login of tenants.

use recado_postgres::testing::tenant_url;
use recado_testkit::services::pgbouncer::PgBouncer;
use serde_json::json;

use crate::harness::database::Database;
use crate::harness::process::{Process, command, environment};
use crate::harness::runs::{calls, wait_for_stat};
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

/// Fewer than the connections of the server, so that its transactions change sessions all the time.
const SERVER_CONNECTIONS: usize = 4;

/// Starts a server whose every connection goes through PgBouncer. None: PgBouncer is not installed.
fn start(with_login: bool) -> Option<(Server, PgBouncer)> {
    let db = Database::new();
    let (owner, tenant) = (db.url(), tenant_url(&db.url()));
    let pooler = PgBouncer::start(&[&owner, &tenant], SERVER_CONNECTIONS)?;
    let tenant = if with_login {
        pooler.through(&tenant)
    } else {
        String::new()
    };
    let options = Options::default()
        .with("DATABASE_URL", pooler.through(&owner))
        .with("TENANT_DATABASE_URL", tenant);
    Some((Server::start_on(db, &options), pooler))
}

/// Contacts with a name that only their account has.
fn add_contacts(user: &User<'_>, name: &str, count: usize) {
    let rows: String = (0..count)
        .map(|number| format!("{name},+55119{:08}\n", number + 10_000_000))
        .collect();
    user.import(format!("name,phone\n{rows}")).ok();
}

fn main_job(server: &Server) {
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    ana.contacts(40);
    add_contacts(&bia, "Bia", 30);
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!(
        report,
        json!({ "total": 40, "sent": 40, "failed": 0, "simulated": false, "status": "completed" })
    );
    // Callbacks of WhatsApp, the outbox and its relays.
    wait_for_stat(&ana, &id, "read", 40);
    assert!(calls(server).values().all(|count| *count == 1));
    server.db.wait_for_outbox();
    until("the audit log has the run", || {
        ana.get("/api/audit-logs?entity_type=campaign_send").ok()["total"] != json!(0)
    });
    for foreign in [format!("/api/campaigns/{id}"), format!("/api/campaigns/{id}/stats")] {
        bia.get(&foreign).refused(404, "NOT_FOUND");
    }
    interleaved_reads(&ana, &bia);
    assert!(!server.log().contains("prepared statement"));
}

/// Two tenants read at the same time: each sees its own contacts only.
fn interleaved_reads(ana: &User<'_>, bia: &User<'_>) {
    let totals = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|number| {
                let (user, total) = if number % 2 == 0 { (ana, 40) } else { (bia, 30) };
                let requests: Vec<_> = (0..20)
                    .map(|_| user.request("GET", "/api/contacts?limit=100"))
                    .collect();
                let is_bia = number % 2 == 1;
                scope.spawn(move || {
                    requests.into_iter().all(|request| {
                        let page = request.send().ok();
                        let contacts = page["data"].as_array().unwrap();
                        contacts.len() == total
                            && contacts
                                .iter()
                                .all(|contact| (text(&contact["name"]) == "Bia") == is_bia)
                    })
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(totals.into_iter().all(|is_right| is_right));
}

#[test]
fn main_job_works_through_pgbouncer_with_a_tenant_login() {
    let Some((server, pooler)) = start(true) else { return };
    main_job(&server);
    // PgBouncer has made no connection of a tenant as the owner.
    assert!(pooler.log().contains("recado_tenant@"), "{}", pooler.log());
}

#[test]
fn main_job_works_through_pgbouncer_without_a_tenant_login() {
    let Some((server, _pooler)) = start(false) else { return };
    main_job(&server);
}

#[test]
fn tenants_log_in_as_the_tenant_role() {
    let server = Server::new();
    let ana = server.owner();
    ana.get("/api/contacts").ok();
    let users = |condition: &str| {
        server.db.count(&format!(
            "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'recado tenant' AND {condition}"
        ))
    };
    assert!(users("usename = 'recado_tenant'") > 0);
    assert_eq!(users("usename <> 'recado_tenant'"), 0);
}

#[test]
fn server_without_a_tenant_url_assumes_the_role() {
    let server = Server::start(Options::default().with("TENANT_DATABASE_URL", ""));
    let (ana, bia) = (server.owner(), server.owner());
    let contact = text(
        &ana.post("/api/contacts", json!({ "name": "C", "phone": "+5511961111111" }))
            .created()["id"],
    );
    bia.get(&format!("/api/contacts/{contact}")).refused(404, "NOT_FOUND");
    ana.get(&format!("/api/contacts/{contact}")).ok();
}

#[test]
fn server_refuses_to_start_with_a_tenant_that_owns_tables() {
    let db = Database::new();
    let role = format!("recado_test_owner_{}", uuid::Uuid::new_v4().simple());
    db.run(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'hunter2secret' IN ROLE recado_tenant; ALTER TABLE tags OWNER TO {role}"
    ));
    let url = db.url();
    let (_, server) = url.split_once('@').unwrap();
    for (tenant, reason) in [
        (format!("postgres://{role}:hunter2secret@{server}"), "owns tables"),
        (url.clone(), "is a superuser"),
    ] {
        for arguments in [&["serve"][..], &["serve", "--no-workers"], &["worker"]] {
            let mut env = environment(&url, "http://127.0.0.1:9/v25.0");
            env.push(("TENANT_DATABASE_URL", tenant.clone()));
            let mut process = Process::start(arguments, &env);
            assert_eq!(process.wait(), Some(1), "{reason}");
            let log = process.log();
            assert!(log.contains("TENANT_DATABASE_URL") && log.contains(reason), "{log}");
            assert!(!log.contains("hunter2secret"), "{log}");
        }
    }
    db.run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

#[test]
fn migrate_makes_the_login_of_tenant_database_url() {
    let server = Server::prepare(&Options::default());
    let role = format!("recado_test_login_{}", uuid::Uuid::new_v4().simple());
    let url = server.db.url();
    let (_, address) = url.split_once('@').unwrap();
    let mut env = server.environment();
    env.push((
        "TENANT_DATABASE_URL",
        format!("postgres://{role}:its-own-password@{address}"),
    ));
    let output = command(&["migrate"], &env).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stderr).contains("its-own-password"),
        "{output:?}"
    );
    let mut process = Process::start(&["serve"], &env);
    let port = process.port();
    let stranger = server.stranger();
    let request =
        |method: &str, path: &str| crate::harness::client::Request::new(port, method, path).bearer(&stranger.token);
    until("the server is ready", || {
        request("GET", "/readyz")
            .try_send()
            .is_ok_and(|reply| reply.status == 200)
    });
    request("POST", "/api/accounts")
        .json(&json!({ "name": "Loja" }))
        .send()
        .created();
    request("GET", "/api/contacts").send().ok();
    let sessions = format!("FROM pg_stat_activity WHERE usename = '{role}'");
    assert!(server.db.count(&sessions) > 0);
    assert_eq!(process.stop(), Some(0));
    until("its connections are closed", || server.db.count(&sessions) == 0);
    server
        .db
        .run(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}
