//! Throughput of reads by API key compared with the same reads by session. Both use a cached grant or membership.

use std::fs;

use anyhow::{Context, Result};
use recado_testkit::services::postgres::connect;
use recado_testkit::services::wrk_or_install;
use recado_testkit::token;

use super::Options;
use super::data::{EMAIL, Target, targets};
use super::fixture::Fixture;
use super::load::{Request, Wrk};
use super::results::{BenchResult, median_and_spread};

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let dir = fixture.dir().join("keys");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let sessions = Wrk::new(wrk_or_install()?, fixture.dir(), &fixture.requests()?)?;
    let keys = Wrk::new(wrk_or_install()?, &dir, &by_key(fixture)?)?;
    let server = fixture.serve()?;
    sessions.run(&server.base, 1)?;
    keys.run(&server.base, 1)?;
    let mut ratios = Vec::new();
    for number in 1..=options.pairs {
        let by_session = sessions.run(&server.base, options.seconds)?;
        let by_key = keys.run(&server.base, options.seconds)?;
        println!(
            "{number}/{}: by key {by_key:.0}/s; by session {by_session:.0}/s",
            options.pairs
        );
        ratios.push(by_key / by_session);
    }
    let (ratio, spread) = median_and_spread(&ratios);
    let result = BenchResult::more("keys: read throughput by API key / by session", ratio, "", 2);
    Ok(vec![result.spread(spread).target(0.97)])
}

/// Creates an API key per target; returns the same reads with these keys.
fn by_key(fixture: &Fixture) -> Result<Vec<Request>> {
    let user = token::user_id(EMAIL);
    let mut client = connect(&fixture.database())?;
    let request = |Target { account, campaign }: Target| {
        let key = format!("svc_live_sk_{}", account.replace('-', ""));
        client
            .batch_execute(&format!(
                "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
                   VALUES ('{account}', '{campaign}', 'Bench', 'svc_live_sk_', 'xxxx', '{user}');
                 INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
                   VALUES (sha256('{key}'), '{account}', '{campaign}', '{user}')"
            ))
            .context("cannot create an API key")?;
        Ok(Request {
            path: format!("/api/campaigns/{campaign}"),
            headers: vec![("authorization", format!("Bearer {key}"))],
            body: None,
        })
    };
    targets().into_iter().map(request).collect()
}
