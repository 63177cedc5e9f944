//! Rolling updates between two versions: the program of the previous version (N-1) and the current one (N) serve the same
//! database, forward and back, while a campaign runs. `cargo xtask test previous` builds the program.

use std::ops::Range;
use std::path::{Path, PathBuf};

use recado_testkit::services::ReservedPort;
use recado_testkit::{paths, skip::skip};

use super::rollouts::Balancer;
use crate::harness::client::Request;
use crate::harness::database::Database;
use crate::harness::process::{BINARY, Process};
use crate::harness::reference;
use crate::harness::runs::{assert_stats_add_up, calls, final_status, usage, without_statuses};
use crate::harness::{Server, eventually, until};

/// The delay between messages, in milliseconds, with which the run outlasts all replacements. The last server has none.
const SLOW: &str = "500";

/// The server that the load balancer uses.
struct Fleet<'a> {
    server: &'a Server,
    balancer: &'a Balancer,
    port: u16,
    process: Process,
}

impl Fleet<'_> {
    /// Replaces the server by one of this version at another address, and that by a second one at the first address,
    /// where the users' helpers expect it.
    fn replace_by(&mut self, program: &Path, delay_ms: &str) {
        let other = ReservedPort::new().unwrap();
        reference::expect_previous_version(other.number());
        for (port, address) in [
            (other.number(), ("BIND", other.address())),
            (self.server.port(), self.server.bind()),
        ] {
            let changes = [("CAMPAIGN_MESSAGE_DELAY_MS", delay_ms.to_owned()), address];
            let process = self.server.spawn_program(program, &["serve"], &changes);
            self.balancer.admit(port);
            let mut old = std::mem::replace(&mut self.process, process);
            assert_eq!(old.stop(), Some(0));
            self.balancer.forget(std::mem::replace(&mut self.port, port));
        }
    }
}

/// The main job of a new account: import contacts, make a campaign, send it, and read what became of it. The contacts
/// have the numbers of these five positions.
fn main_job(server: &Server, numbers: Range<usize>) {
    let user = server.owner();
    user.profile();
    let id = user.campaign_to("vip", numbers);
    user.send(&id);
    assert_eq!(final_status(&user, &id), "completed");
    let stats = user.stats(&id);
    assert_stats_add_up(&stats);
    assert_eq!(stats["sent"], 5, "{stats}");
    assert_eq!(user.sends(&id).len(), 5);
}

fn migrate(server: &Server, program: &Path) {
    let mut migration = server.spawn_program(program, &["migrate"], &[]);
    assert_eq!(migration.wait(), Some(0));
}

fn migrations(db: &Database) -> String {
    db.text("SELECT count(*) FROM __diesel_schema_migrations")
}

/// A server of the current version on the schema of the previous one serves if it knows no further migration. Otherwise
/// it is not ready, so that no request reaches it.
fn start_before_the_migration(server: &Server, lacks_migrations: bool) {
    let mut process = server.spawn(&["serve", "--no-workers"]);
    let port = process.port();
    let readiness = eventually("the new server responds", || {
        Request::new(port, "GET", "/readyz").try_send().ok()
    });
    assert_eq!(readiness.status, if lacks_migrations { 503 } else { 200 });
    assert_eq!(process.stop(), Some(0));
}

/// R10, F40g.
#[test]
fn previous_and_current_version_replace_each_other_during_a_run() {
    let previous: PathBuf = paths::target().join("previous/recado");
    if !previous.is_file() {
        return skip("target/previous/recado is missing: run cargo xtask test previous");
    }
    let current = Database::new();
    let empty = current.empty();
    let options = without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", SLOW);
    let server = Server::prepare_on(Database::at(&empty.url()), &options);
    reference::expect_previous_version(server.port());
    migrate(&server, &previous);
    let lacks_migrations = migrations(&server.db) != migrations(&current);
    let process = server.spawn_program(&previous, &["serve"], &[server.bind()]);
    server.wait_ready_at(server.port());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    let contacts = 200;
    ana.contacts(contacts);
    let id = ana.plain_campaign();
    ana.send(&id);
    let balancer = Balancer::default();
    balancer.ports.write().unwrap().push(server.port());
    let (port, balancer) = (server.port(), &balancer);
    let mut fleet = Fleet {
        server: &server,
        balancer,
        port,
        process,
    };
    balancer.during([&ana.token, &bia.token], || {
        start_before_the_migration(&server, lacks_migrations);
        migrate(&server, Path::new(BINARY));
        assert_eq!(migrations(&server.db), migrations(&current));
        main_job(&server, 1000..1005);
        fleet.replace_by(Path::new(BINARY), SLOW);
        main_job(&server, 2000..2005);
        // Back to the previous version, which reads what the current one wrote.
        fleet.replace_by(&previous, SLOW);
        main_job(&server, 3000..3005);
        assert_ne!(
            ana.status(&id),
            "completed",
            "the run ended before it met both versions"
        );
        fleet.replace_by(Path::new(BINARY), "0");
    });
    until("the run ends", || ana.status(&id) == "completed");
    let calls = calls(&server);
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    assert_eq!(calls.len(), contacts + 15);
    assert_eq!(usage(&server, &ana.account), format!("{contacts} 0"));
}
