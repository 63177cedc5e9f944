//! Bench `admin-accounts`: the administrators' list of accounts and its search, with 10,000 accounts compared with 100.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use recado_testkit::process;
use recado_testkit::scratch::{OTHER_LOG, SERVER_LOG};
use recado_testkit::services::postgres::connect;
use recado_testkit::services::wrk_or_install;
use recado_testkit::token;

use super::Options;
use super::data::EMAIL;
use super::fixture::{Fixture, Launch, Server};
use super::load::{Request, Wrk};
use super::results::{BenchResult, median_and_spread};

type List = (&'static str, &'static str, Option<f64>);

/// Name, path, and target of the ratio. The search finds one account in either database. It reads every account, so it
/// has no target.
const LISTS: [List; 2] = [
    ("list", "/api/admin/accounts", Some(1.5)),
    ("search", "/api/admin/accounts?search=dono7%40", None),
];

/// Numbers of accounts in the two databases.
const FEW: u32 = 100;
const MANY: u32 = 10_000;

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let few = serve(fixture, FEW, SERVER_LOG)?;
    let many = serve(fixture, MANY, OTHER_LOG)?;
    let mut results = Vec::new();
    for (name, path, target) in LISTS {
        let dir = fixture.dir().join(name.replace(' ', "-"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let request = Request {
            path: path.to_owned(),
            headers: fixture.headers(&token::user_id(EMAIL))?,
            body: None,
        };
        let wrk = Wrk::new(wrk_or_install()?, &dir, &[request])?;
        wrk.run(&few.base, 1)?;
        wrk.run(&many.base, 1)?;
        let mut rounds = Vec::new();
        for number in 1..=options.pairs {
            let (short, long) = (
                wrk.run(&few.base, options.seconds)?,
                wrk.run(&many.base, options.seconds)?,
            );
            println!(
                "{name}, {number}/{}: {short:.0}/s of {FEW}, {long:.0}/s of {MANY}",
                options.pairs
            );
            rounds.push((short / long, long));
        }
        let (ratio, spread) = median_and_spread(&rounds.iter().map(|round| round.0).collect::<Vec<_>>());
        let (rate, _) = median_and_spread(&rounds.iter().map(|round| round.1).collect::<Vec<_>>());
        let result = BenchResult::less(
            format!("admin-accounts: {name} throughput at 100 accounts / 10,000"),
            ratio,
            "",
            1,
        )
        .spread(spread);
        results.push(match target {
            Some(target) => result.target(target),
            None => result,
        });
        results.push(BenchResult::more(
            format!("admin-accounts: {name} throughput at 10,000 accounts"),
            rate,
            "/s",
            0,
        ));
    }
    Ok(results)
}

/// Starts a server on a database with this many accounts, each with an owner, a member and contacts, every third with a
/// subscription.
fn serve(fixture: &Fixture, accounts: u32, log: &'static str) -> Result<Server> {
    let name = format!("recado_accounts_{accounts}");
    fixture.cluster.ensure_database(&name)?;
    let database = fixture.cluster.url(&name);
    let mut migrate = Command::new(fixture.program("recado"));
    migrate.arg("migrate").env("DATABASE_URL", &database);
    process::quietly(&mut migrate, "recado migrate")?;
    let id = "md5('a' || a)::uuid";
    let sql = format!(
        "INSERT INTO users (id, email) SELECT md5('u' || a)::uuid, 'dono' || a || '@loja.example'
           FROM generate_series(1, {accounts}) a;
         INSERT INTO accounts (id, name, slug, plan, created_at)
           SELECT {id}, 'Loja ' || a, 'loja-' || a, (ARRAY['free', 'starter', 'growth'])[a % 3 + 1],
             now() - a * interval '1 minute' FROM generate_series(1, {accounts}) a;
         INSERT INTO account_users (account_id, user_id, role)
           SELECT {id}, md5('u' || a)::uuid, 'owner' FROM generate_series(1, {accounts}) a
           UNION ALL SELECT {id}, md5('u' || a % {accounts} + 1)::uuid, 'member' FROM generate_series(1, {accounts}) a;
         INSERT INTO contacts (account_id, id, name, phone)
           SELECT {id}, md5(a || 'c' || c)::uuid, 'Contato', '+55119' || lpad(c::text, 8, '0')
           FROM generate_series(1, {accounts}) a, generate_series(1, 20) c;
         INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value)
           SELECT {id}, md5('s' || a)::uuid, 'starter', 'MONTHLY', 'active', 'PIX', 9700
           FROM generate_series(1, {accounts}, 3) a"
    );
    let mut client = connect(&database)?;
    client
        .batch_execute(&sql)
        .and_then(|()| client.batch_execute("VACUUM ANALYZE"))
        .context("cannot fill the database")?;
    fixture.launch(&Launch {
        database,
        more: vec![("PLATFORM_ADMIN_EMAILS", EMAIL.to_owned())],
        log,
        ..fixture.routes()
    })
}
