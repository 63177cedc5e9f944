//! One history: accounts, concurrent clients on two servers, faults, and the check of everything that was recorded.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use super::campaigns::Campaigns;
use super::contacts::ContactKey;
use super::proxy::{Proxy, ProxyBug};
use super::sends::SendLedger;
use super::subscriptions::SubscriptionKey;
use super::transport::{Client, Transport};
use crate::harness::client::Request;
use crate::harness::process::Process;
use crate::harness::rng::TestRng;
use crate::harness::runs::expire_leases;
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, Options, Server, until};

/// Recipients of each campaign.
const RECIPIENTS: usize = 12;

/// Groups of recipients, one campaign after the other. A recipient gets one message of a number in `PAIR_INTERVAL`, so
/// concurrent runs to the same recipients would wait for seconds.
const AUDIENCES: usize = 16;

/// Clients of a history.
const CLIENTS: usize = 5;

/// The calls of a history: so many for each area, and so many for each fault.
const CALLS_PER_AREA: usize = 60;
const CALLS_PER_FAULT: usize = 40;

/// The resources that the clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    Contacts,
    Campaigns,
    Subscriptions,
}

pub(super) const AREAS: [Area; 3] = [Area::Contacts, Area::Campaigns, Area::Subscriptions];

/// Two servers on one database.
pub(super) struct Servers {
    pub(super) first: Server,
    second: RefCell<Option<Process>>,
}

/// What a history does.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) seed: u64,
    pub(super) number: u64,
    /// The number of kills and cut connections.
    pub(super) faults: usize,
    pub(super) areas: &'a [Area],
    pub(super) proxy: Option<ProxyBug>,
}

/// The accounts of a history.
struct Accounts {
    contacts: [ContactKey; 2],
    subscriptions: [SubscriptionKey; 2],
    campaigns: Campaigns,
    /// The account of the campaigns.
    sender: String,
}

impl Servers {
    pub(super) fn start() -> Self {
        Self::start_with(|options| options)
    }

    /// Starts the servers with further options. Without a reachable Redis the rate limiter admits every request.
    pub(super) fn start_with(change: impl FnOnce(Options) -> Options) -> Self {
        let options = Options::with_whatsapp(|whatsapp| {
            whatsapp.latency_ms = 3;
            (whatsapp.sent_ms, whatsapp.delivered_ms, whatsapp.read_ms) = (Some(20), Some(60), Some(120));
        });
        let options = options.with("REDIS_URL", "redis://127.0.0.1:1");
        let options = options.with("CAMPAIGN_MESSAGE_DELAY_MS", "5");
        let first = Server::prepare(&change(options.with("SEND_UNKNOWN_TTL", "1s")));
        first.payment.set_options(|options| options.webhook_url = None);
        let servers = Self {
            first,
            second: RefCell::default(),
        };
        servers.start_both();
        servers
    }

    /// Starts the second server while the first one starts.
    fn start_both(&self) {
        let second = self.first.spawn(&["serve"]);
        self.first.run(&["serve"]);
        self.set_second(second);
    }

    fn set_second(&self, process: Process) {
        self.first.wait_ready_at(process.port());
        self.second.replace(Some(process));
    }

    fn ports(&self) -> [u16; 2] {
        let second = self.second.borrow();
        [
            self.first.port(),
            second.as_ref().map_or(self.first.port(), Process::port),
        ]
    }

    /// Creates the accounts of a history.
    fn accounts(&self) -> Accounts {
        let request = |user: &User<'_>| Request::new(self.first.port(), "GET", "/").bearer(&user.token);
        let ana = self.first.owner();
        let account = &ana.account;
        self.first
            .db
            .run(&format!("UPDATE accounts SET plan = 'scale' WHERE id = '{account}'"));
        let profile = ana.profile();
        let name = |audience: usize| format!("audience {audience}");
        let audiences = (0..AUDIENCES).map(|audience| ana.tag(&name(audience))).collect();
        let contacts = (0..AUDIENCES * RECIPIENTS).map(|at| format!("C,{},{}\n", phone(at), name(at / RECIPIENTS)));
        ana.import(format!("name,phone,tags\n{}", contacts.collect::<String>()))
            .ok();
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let number = format!("SELECT phone_number_id FROM whatsapp_profiles WHERE id = '{profile}'");
        Accounts {
            contacts: [(); 2].map(|()| ContactKey::new(request(&self.first.owner()))),
            subscriptions: [(); 2].map(|()| SubscriptionKey::new(request(&self.first.owner()))),
            campaigns: Campaigns::new(request(&ana), template, audiences, self.first.db.text(&number)),
            sender: ana.account,
        }
    }

    /// Runs a history. Returns a report of the first key that is not linearizable, or of a wrong send.
    pub(super) fn run(&self, plan: Plan<'_>) -> Result<(), String> {
        let accounts = self.accounts();
        let transport = Transport::new(self.ports(), plan.proxy.map(Proxy::new));
        let rng = |number: usize| TestRng::of(plan.seed, plan.number * 100 + u64::try_from(number).unwrap());
        let calls = plan.areas.len() * CALLS_PER_AREA + plan.faults * CALLS_PER_FAULT;
        std::thread::scope(|scope| {
            let clients = (0..CLIENTS).map(|number| {
                let mut client = Client::new(number, rng(number), &transport);
                let accounts = &accounts;
                scope.spawn(move || {
                    while client.transport.calls() < calls {
                        accounts.make_random_call(&mut client, plan.areas);
                    }
                })
            });
            let clients: Vec<_> = clients.collect();
            let mut faults = rng(CLIENTS);
            for number in 1..=plan.faults {
                let calls_before = calls * number / (plan.faults + 1);
                self.wait(true, "the clients make calls", || transport.calls() >= calls_before);
                self.inject_fault(&transport, &mut faults);
            }
            self.wait(plan.faults > 0, "the clients end", || {
                clients.iter().all(|client| client.is_finished())
            });
        });
        self.finish_work(plan.faults > 0);
        accounts.read_all(&mut Client::new(CLIENTS, rng(CLIENTS + 1), &transport));
        accounts.check(&self.first, plan.faults > 0)
    }

    /// Kills one server or both at a random instant and restarts them, or cuts the connections to the database.
    fn inject_fault(&self, transport: &Transport, rng: &mut TestRng) {
        std::thread::sleep(rng.duration_below(20_000));
        match rng.below(4) {
            0 => {
                self.first.kill();
                self.expire_leases(false);
                self.first.run(&["serve"]);
            }
            1 => {
                drop(self.second.take());
                self.expire_leases(false);
                self.set_second(self.first.spawn(&["serve"]));
            }
            2 => {
                drop(self.second.take());
                self.first.kill();
                self.expire_leases(true);
                self.start_both();
            }
            _ => {
                self.first.db.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name LIKE 'recado %'",
                );
                self.expire_leases(false);
            }
        }
        transport.ports[1].store(self.ports()[1], Ordering::SeqCst);
    }

    /// Makes the work of the killed servers due. A server that runs loses the lease of its campaigns as if it had
    /// stalled. The lease of a subscription's change protects the call to the gateway, so it expires only if no request
    /// is in flight.
    fn expire_leases(&self, no_requests: bool) {
        expire_leases(&self.first);
        if no_requests {
            self.first.db.run(
                "UPDATE subscriptions SET intent_until = now(), intent_check_at = now() WHERE intent IS NOT NULL;
                      UPDATE whatsapp_callbacks SET due_at = now()",
            );
        }
    }

    /// Waits for a condition. After faults, a run whose worker was killed or lost its connection continues within a
    /// second.
    fn wait(&self, had_faults: bool, what: &str, mut holds: impl FnMut() -> bool) {
        let mut polls = 0;
        until(what, || {
            polls += 1;
            if had_faults && polls % 100 == 0 {
                self.expire_leases(false);
            }
            holds()
        });
    }

    /// Waits until the workers have nothing to do. No request is in flight, so the lease of a subscription's change
    /// protects no call.
    fn finish_work(&self, had_faults: bool) {
        if had_faults {
            self.expire_leases(true);
        }
        let unfinished = "FROM (
            SELECT 1 FROM campaigns WHERE status = 'sending' AND paused_at IS NULL
            UNION ALL SELECT 1 FROM campaign_sends WHERE status = 'pending' AND (started_at IS NOT NULL OR unknown_at IS NOT NULL)
            UNION ALL SELECT 1 FROM subscriptions WHERE attempt AND status = 'pending') AS unfinished";
        self.wait(had_faults, "the workers have nothing to do", || {
            self.first.db.count(unfinished) == 0
        });
        assert!(self.first.whatsapp.wait_idle(DEADLINE), "callbacks are left");
        until("the callbacks are applied", || {
            self.first.db.count("FROM whatsapp_callbacks") == 0
        });
    }
}

impl Accounts {
    /// Makes a random call in one of the areas.
    fn make_random_call(&self, client: &mut Client<'_>, areas: &[Area]) {
        let areas: Vec<Area> = areas.to_vec();
        match client.pick(&areas) {
            Some(Area::Contacts) => client.pick(&self.contacts).unwrap().make_random_call(client),
            Some(Area::Subscriptions) => client.pick(&self.subscriptions).unwrap().make_random_call(client),
            Some(Area::Campaigns) | None => self.campaigns.make_random_call(client),
        }
    }

    fn read_all(&self, client: &mut Client<'_>) {
        self.contacts.iter().for_each(|key| key.read_all(client));
        self.subscriptions.iter().for_each(|key| key.read_all(client));
        self.campaigns.read_all(client);
    }

    fn check(&self, server: &Server, had_faults: bool) -> Result<(), String> {
        for key in &self.contacts {
            key.history.check("the account's contacts")?;
        }
        for key in &self.subscriptions {
            key.history.check("the account's subscription")?;
        }
        for key in self.campaigns.keys.lock().unwrap().iter() {
            key.history.check(&format!("campaign {}", key.id))?;
        }
        SendLedger::read(server, &self.sender, &self.campaigns, RECIPIENTS, had_faults).check()
    }
}
