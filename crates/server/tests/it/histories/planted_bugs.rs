//! Checks the test itself: bugs that are planted below or before the server must be found in the recorded history.

use super::proxy::{ProxyBug, WhatsappProxy};
use super::run::{Area, Plan, Servers};

/// Upper bound of the histories until a planted bug is found.
const MAX_HISTORIES: u64 = 20;

/// A trigger that undoes an update when its transaction commits, so that the response still shows it.
fn undo(table: &str, condition: &str, old: &str) -> String {
    format!(
        "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           UPDATE {table} SET {old} WHERE account_id = NEW.account_id AND id = NEW.id; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER planted AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION planted()"
    )
}

/// A trigger that runs `action` for one of ten sends, before its row is written.
fn change_sends(event: &str, action: &str) -> String {
    format!(
        "CREATE SEQUENCE planted_sends;
         CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           IF nextval('planted_sends') % 10 = 0 THEN {action}; END IF; RETURN NEW; END $$;
         CREATE TRIGGER planted BEFORE {event} EXECUTE FUNCTION planted()"
    )
}

const REMOVE: &str = "DROP FUNCTION IF EXISTS planted CASCADE; DROP SEQUENCE IF EXISTS planted_sends";

/// Runs histories until one has a report. Returns it.
fn find(servers: &Servers, area: Area, proxy: Option<ProxyBug>) -> Option<String> {
    (0..MAX_HISTORIES).find_map(|number| {
        let (seed, faults, areas) = (1, 0, &[area][..]);
        servers
            .run(Plan {
                seed,
                number,
                faults,
                areas,
                proxy,
            })
            .err()
    })
}

/// A part of the report of a key that is not linearizable.
const NO_ORDER: &str = "not linearizable";

/// A bug of the server or of the database.
struct Plant {
    what: &'static str,
    /// The area whose histories find it.
    area: Area,
    /// The statement that plants it.
    sql: String,
    /// A part of the report that it causes.
    report: &'static str,
}

fn plants() -> Vec<Plant> {
    use Area::{Campaigns, Contacts, Subscriptions};
    let name = |table: &str| {
        undo(
            table,
            "NEW.name LIKE '%3' AND OLD.name NOT LIKE '%3'",
            "name = OLD.name",
        )
    };
    let delete = undo("contacts", "NEW.deleted_at IS NOT NULL", "deleted_at = NULL");
    let schedule = undo("campaigns", "NEW.status = 'scheduled'", "status = 'draft'");
    let cancel = "OLD.status <> 'cancelled' AND NEW.status = 'cancelled'";
    let cancel = undo("subscriptions", cancel, "status = OLD.status");
    let plan = undo(
        "subscriptions",
        "NEW.plan = 'scale' AND OLD.plan <> 'scale'",
        "plan = OLD.plan",
    );
    let repeat = change_sends(
        "UPDATE ON campaign_sends FOR EACH ROW WHEN (OLD.started_at IS NULL AND NEW.started_at IS NOT NULL)",
        "NEW.started_at := NULL",
    );
    let omit = change_sends("INSERT ON campaign_sends FOR EACH ROW", "RETURN NULL");
    let status = undo("campaign_sends", "NEW.status = 'read'", "status = 'sent'");
    [
        ("changes of a contact are lost", Contacts, name("contacts"), NO_ORDER),
        ("deleted contacts return", Contacts, delete, NO_ORDER),
        ("changes of a campaign are lost", Campaigns, name("campaigns"), NO_ORDER),
        ("a schedule is lost", Campaigns, schedule, NO_ORDER),
        ("a cancelled subscription stays live", Subscriptions, cancel, NO_ORDER),
        ("a change of plan is lost", Subscriptions, plan, NO_ORDER),
        ("a started send is claimed again", Campaigns, repeat, "the send "),
        ("recipients are left out", Campaigns, omit, "campaign "),
        ("the status of a send goes back", Campaigns, status, "stats"),
    ]
    .map(|(what, area, sql, report)| Plant {
        what,
        area,
        sql,
        report,
    })
    .into()
}

#[test]
fn bugs_planted_in_the_database_are_found() {
    let servers = Servers::start();
    for Plant {
        what,
        area,
        sql,
        report,
    } in plants()
    {
        println!("{what}");
        servers.first.db.run(&sql);
        let found = find(&servers, area, None);
        servers.first.db.run(REMOVE);
        let found = found.unwrap_or_else(|| panic!("{what}: not found by {MAX_HISTORIES} histories"));
        assert!(found.contains(report), "{what}: {found}");
    }
}

#[test]
fn bugs_of_a_proxy_are_found() {
    let whatsapp = WhatsappProxy::start();
    let servers = Servers::start_with(|options| options.with("WHATSAPP_API_URL", whatsapp.base_url()));
    whatsapp.forward_to(&servers.first.whatsapp.origin());
    for (bug, area) in [
        (ProxyBug::StaleReads, Area::Contacts),
        (ProxyBug::StaleReads, Area::Campaigns),
        (ProxyBug::LostWrites, Area::Contacts),
        (ProxyBug::RepeatedDeletes, Area::Contacts),
    ] {
        let found = find(&servers, area, Some(bug));
        let found = found.unwrap_or_else(|| panic!("{bug:?}: not found by {MAX_HISTORIES} histories"));
        assert!(found.contains(NO_ORDER), "{bug:?}: {found}");
    }
    whatsapp.repeat_sends();
    let found = find(&servers, Area::Campaigns, None).unwrap_or_default();
    assert!(found.contains("was called 2 times"), "{found}");
}
