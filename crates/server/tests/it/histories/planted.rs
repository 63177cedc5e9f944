//! Checks the test itself: bugs that are planted below or before the server must be found in the recorded history.

use super::proxy::ProxyBug;
use super::run::{Area, Plan, Servers};

/// Upper bound of the histories until a planted bug is found.
const MAX_HISTORIES: u64 = 8;

/// A trigger that undoes an update when its transaction commits, so that the response still shows it.
fn undo(table: &str, condition: &str, old: &str) -> String {
    format!(
        "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           UPDATE {table} SET {old} WHERE account_id = NEW.account_id AND id = NEW.id; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER planted AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION planted()"
    )
}

const REMOVE: &str = "DROP FUNCTION IF EXISTS planted CASCADE";

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

/// Bugs of the server or of the database: what breaks, the area whose histories find it, and the statement that plants
/// it.
fn plants() -> [(&'static str, Area, String); 6] {
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
    [
        ("changes of a contact are lost", Contacts, name("contacts")),
        ("deleted contacts return", Contacts, delete),
        ("changes of a campaign are lost", Campaigns, name("campaigns")),
        ("a schedule is lost", Campaigns, schedule),
        ("a cancelled subscription stays live", Subscriptions, cancel),
        ("a change of plan is lost", Subscriptions, plan),
    ]
}

#[test]
fn bugs_planted_in_the_database_are_found() {
    let servers = Servers::start();
    for (what, area, plant) in plants() {
        println!("{what}");
        servers.first.db.run(&plant);
        let found = find(&servers, area, None);
        servers.first.db.run(REMOVE);
        let found = found.unwrap_or_else(|| panic!("{what}: not found by {MAX_HISTORIES} histories"));
        assert!(found.contains("not linearizable"), "{what}: {found}");
    }
}

#[test]
fn bugs_of_a_proxy_are_found() {
    let servers = Servers::start();
    for (bug, area) in [
        (ProxyBug::StaleReads, Area::Contacts),
        (ProxyBug::StaleReads, Area::Campaigns),
        (ProxyBug::LostWrites, Area::Contacts),
        (ProxyBug::RepeatedDeletes, Area::Contacts),
    ] {
        let found = find(&servers, area, Some(bug));
        let found = found.unwrap_or_else(|| panic!("{bug:?}: not found by {MAX_HISTORIES} histories"));
        assert!(found.contains("not linearizable"), "{bug:?}: {found}");
    }
}
