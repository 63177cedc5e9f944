//! The data of the measured database: 200 accounts with 1000 campaigns each. The bench user belongs to all of them.

use anyhow::{Context, Result};
use recado_testkit::services::postgres::connect;
use recado_testkit::token;

pub(super) const EMAIL: &str = "bench@recado.example";

const ACCOUNTS: u32 = 200;
const CAMPAIGNS: u32 = 1000;

/// Number of campaigns to read, spread over the accounts and over each account's campaigns.
const TARGETS: u32 = 16;

/// A campaign to read, and its account.
pub(super) struct Target {
    pub(super) account: String,
    pub(super) campaign: String,
}

pub(super) fn targets() -> Vec<Target> {
    (0..TARGETS)
        .map(|at| {
            let account = 1 + at * ACCOUNTS / TARGETS;
            Target {
                account: account_id(account),
                campaign: campaign_id(account, 1 + at * CAMPAIGNS / TARGETS),
            }
        })
        .collect()
}

/// The ids of all accounts. The user of [`EMAIL`] belongs to all of them.
pub(super) fn accounts() -> Vec<String> {
    (1..=ACCOUNTS).map(account_id).collect()
}

/// Ids ascend in the order of creation, as those of the server do.
fn account_id(account: u32) -> String {
    format!("0193a6e0-0000-7000-8000-{account:012x}")
}

fn campaign_id(account: u32, campaign: u32) -> String {
    format!("0193a6e1-{account:04x}-7000-8000-{campaign:012x}")
}

/// Fills an empty, migrated database.
pub(super) fn fill(database: &str) -> Result<()> {
    let user = token::user_id(EMAIL);
    let account = "('0193a6e0-0000-7000-8000-' || lpad(to_hex(a), 12, '0'))::uuid";
    let sql = format!(
        "INSERT INTO users (id, email) VALUES ('{user}', '{EMAIL}');
         INSERT INTO accounts (id, name, slug, plan)
           SELECT {account}, 'Loja ' || a, 'loja-' || a, 'growth' FROM generate_series(1, {ACCOUNTS}) a;
         INSERT INTO account_users (account_id, user_id, role)
           SELECT {account}, '{user}', 'owner' FROM generate_series(1, {ACCOUNTS}) a;
         INSERT INTO message_templates (account_id, id, name, category, language, template_type, body_text)
           SELECT {account}, {account}, 'oferta', 'MARKETING', 'pt_BR', 'standard', 'Oi {{{{1}}}}, use {{{{2}}}}.'
           FROM generate_series(1, {ACCOUNTS}) a;
         INSERT INTO campaigns
           (account_id, id, name, template_id, segment_config, variables, created_by, created_at, updated_at)
           SELECT {account},
             ('0193a6e1-' || lpad(to_hex(a), 4, '0') || '-7000-8000-' || lpad(to_hex(c), 12, '0'))::uuid,
             'Oferta de verão ' || lpad(c::text, 4, '0'), {account},
             '{{\"tag_ids\": [], \"filters\": {{\"has_email\": true}}}}',
             '{{\"2\": \"{{attributes.cupom|BEMVINDO10}}\"}}',
             '{user}', now() - make_interval(mins => {CAMPAIGNS} - c), now()
           FROM generate_series(1, {ACCOUNTS}) a, generate_series(1, {CAMPAIGNS}) c"
    );
    let mut client = connect(database)?;
    client
        .batch_execute(&sql)
        .and_then(|()| client.batch_execute("VACUUM ANALYZE"))
        .and_then(|()| client.batch_execute("CHECKPOINT"))
        .context("cannot fill the database")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_exist_and_differ() {
        let targets = targets();
        assert_eq!(targets[0].account, "0193a6e0-0000-7000-8000-000000000001");
        assert_eq!(targets[15].account, account_id(188));
        assert_eq!(targets[15].campaign, campaign_id(188, 938));
        assert_eq!(campaign_id(188, 938), "0193a6e1-00bc-7000-8000-0000000003aa");
    }
}
