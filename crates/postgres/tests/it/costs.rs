//! Costs: prices, their sums and budgets. A plain reckoning of random histories is compared with every report.

use std::collections::BTreeMap;

use recado_domain::administration::{PlatformEntity, PlatformEntry};
use recado_domain::analytics::{CostGroupBy, CostStore as _, Window, Zone};
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::{
    Budget, Campaign, CampaignRefusal, CampaignStore as _, QueuedRun, RunStartStore as _, SendResult, SendStore as _,
    StartOutcome,
};
use recado_domain::costs::{CardDeletion, CostSums, RateCard, RateCardDraft, RateCardStore as _, parse_rates};
use recado_domain::messaging::{Pricing, PricingSource, SendStatus};
use recado_domain::rollups::RollupStore as _;
use recado_domain::shared::{Amount, AuditAction, CursorQuery, RateCardId, SendId};
use recado_postgres::{PgCosts, PgRateCards, PgRollups};
use time::macros::{date, datetime};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id, platform_entry};

/// Midnight in the zone of the second card.
pub(crate) const MIDNIGHT: OffsetDateTime = datetime!(2026-03-01 3:00 UTC);

pub(crate) const OLD_CARD: &str = "market,currency,category,rate,effective_from,countries,zone\n\
    BR,USD,marketing,0.0625,2026-01-01,,\n\
    BR,USD,utility,0.008,2026-01-01,,\n\
    Europe,USD,marketing,0.086412,2026-01-01,PT;ES,\n\
    Europe,USD,utility,0.1,2026-01-01,PT;ES,\n";

/// It has other currencies, another grouping and a rate change at `MIDNIGHT`.
const NEW_CARD: &str = "market,currency,category,rate,effective_from,countries,zone\n\
    BR,USD,marketing,0.07,2026-03-01,,America/Sao_Paulo\n\
    Iberia,EUR,utility,0.033333,2026-02-01,ES,\n";

fn draft(number: i64, file: &str) -> RateCardDraft {
    let rows = parse_rates(file.as_bytes()).unwrap();
    let card = RateCard {
        id: RateCardId(id()),
        name: format!("card {number}"),
        rows: i64::try_from(rows.len()).unwrap(),
        currencies: vec!["USD".into()],
        effective_from: date!(2026 - 01 - 01),
        created_at: datetime!(2026-01-01 0:00 UTC) + Duration::days(number),
    };
    RateCardDraft { card, rows }
}

fn entry(fixture: &DbFixture, action: AuditAction, card: RateCardId) -> PlatformEntry {
    PlatformEntry {
        action,
        entity: PlatformEntity::RateCard,
        entity_id: card.0,
        account_id: None,
        ..platform_entry(fixture.account)
    }
}

pub(crate) async fn add_card(fixture: &DbFixture, number: i64, file: &str) -> RateCardId {
    let draft = draft(number, file);
    let store = PgRateCards::new(fixture.owner.clone());
    store
        .insert(&draft, entry(fixture, AuditAction::Create, draft.card.id))
        .await
        .unwrap();
    draft.card.id
}

/// Reports the differences of the rollups of costs.
pub(crate) async fn differences(fixture: &DbFixture) -> Vec<String> {
    let found = PgRollups::new(fixture.owner.clone())
        .verify(fixture.account)
        .await
        .unwrap();
    let of_costs = found
        .into_iter()
        .filter(|found| matches!(found.rollup, "cost_rollups" | "campaign_budgets"));
    of_costs.map(|found| found.to_string()).collect()
}

pub(crate) fn pricing(category: &str, at: OffsetDateTime) -> Pricing {
    Pricing {
        billable: true,
        model: Some("PMP".into()),
        kind: Some("regular".into()),
        category: Some(category.into()),
        market: None,
        amount: None,
        currency: None,
        source: PricingSource::None,
        priced_at: at,
    }
}

pub(crate) fn free(category: &str, at: OffsetDateTime) -> Pricing {
    Pricing {
        billable: false,
        kind: Some("free_customer_service".into()),
        amount: Some(Amount::ZERO),
        ..pricing(category, at)
    }
}

/// xorshift: the same history for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A message and what the plain reckoning knows about it.
struct Message {
    send_id: Option<SendId>,
    message_id: String,
    country: &'static str,
    campaign: String,
    number: String,
    template: String,
    updates: Vec<StatusUpdate>,
}

/// A row of a card as the plain reckoning has it: the number of the card, countries, market, currency, category, rate in
/// millionths, start.
type PlainRate = (
    u8,
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
    i128,
    OffsetDateTime,
);

const NEW_YEAR: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

const PLAIN_RATES: [PlainRate; 6] = [
    (1, &["BR"], "BR", "USD", "marketing", 62_500, NEW_YEAR),
    (1, &["BR"], "BR", "USD", "utility", 8_000, NEW_YEAR),
    (1, &["PT", "ES"], "Europe", "USD", "marketing", 86_412, NEW_YEAR),
    (1, &["PT", "ES"], "Europe", "USD", "utility", 100_000, NEW_YEAR),
    (2, &["BR"], "BR", "USD", "marketing", 70_000, MIDNIGHT),
    (
        2,
        &["ES"],
        "Iberia",
        "EUR",
        "utility",
        33_333,
        datetime!(2026-02-01 0:00 UTC),
    ),
];

/// Amount in millionths, messages, billable, free, unpriced.
type PlainSums = (i128, i64, i64, i64, i64);

/// What a message costs: its market, category, currency, sums and time. None: it does not count.
fn plain_cost(message: &Message, has_cards: bool) -> Option<(String, String, String, PlainSums, OffsetDateTime)> {
    let is_charged = |update: &&StatusUpdate| matches!(update.status, SendStatus::Delivered | SendStatus::Read);
    message.updates.iter().find(is_charged)?;
    let rank = |status: SendStatus| SendStatus::ALL.iter().position(|other| *other == status).unwrap();
    let mut priced: Vec<&StatusUpdate> = message
        .updates
        .iter()
        .filter(|update| update.pricing.is_some())
        .collect();
    priced.sort_by_key(|update| (update.at, rank(update.status)));
    let since = priced.first()?.at;
    let pricing = priced.last()?.pricing.clone().unwrap();
    let category = pricing.category.clone().unwrap();
    let covers = |rate: &&PlainRate| has_cards && rate.1.contains(&message.country) && rate.6 <= since;
    let covering = PLAIN_RATES.iter().filter(covers);
    let newest = covering.clone().max_by_key(|rate| rate.0);
    let best = covering
        .filter(|rate| rate.4 == category)
        .max_by_key(|rate| (rate.0, rate.6));
    let shown = best.or(newest);
    let market = shown.map_or("", |rate| rate.2).to_owned();
    let reported = pricing.amount.filter(|_| pricing.source == PricingSource::Platform);
    let (currency, sums) = match (pricing.billable, reported, best) {
        (false, _, _) => (shown.map_or("", |rate| rate.3).to_owned(), (0, 1, 0, 1, 0)),
        (true, Some(_), _) => (pricing.currency.clone().unwrap(), (123_456, 1, 1, 0, 0)),
        (true, None, Some(rate)) => (rate.3.to_owned(), (rate.5, 1, 1, 0, 0)),
        (true, None, None) => (String::new(), (0, 1, 1, 0, 1)),
    };
    Some((market, category, currency, sums, since))
}

fn add(sums: &mut BTreeMap<(String, String), PlainSums>, key: (String, String), more: PlainSums) {
    let sum = sums.entry(key).or_default();
    *sum = (
        sum.0 + more.0,
        sum.1 + more.1,
        sum.2 + more.2,
        sum.3 + more.3,
        sum.4 + more.4,
    );
}

fn millionths(sums: &CostSums) -> PlainSums {
    let text = (sums.amount * Amount::from(1_000_000)).to_string();
    (
        text.parse().unwrap(),
        sums.messages,
        sums.billable,
        sums.free,
        sums.unpriced,
    )
}

/// The days of the report.
fn window() -> Window {
    let zone: Zone = "America/Sao_Paulo".parse().unwrap();
    Window::between(date!(2026 - 02 - 26), date!(2026 - 03 - 04), &zone).unwrap()
}

/// The status updates of one message, each at another second, repeated.
fn history(rng: &mut Rng) -> Vec<(SendStatus, OffsetDateTime, Option<Pricing>)> {
    use SendStatus::{Delivered, Failed, Read, Sent};
    let statuses: &[SendStatus] = [
        &[Sent, Delivered, Read][..],
        &[Sent, Read],
        &[Delivered],
        &[Sent],
        &[Sent, Failed],
    ][rng.below(5)];
    let first = MIDNIGHT + Duration::minutes(i64::try_from(rng.below(4000)).unwrap() - 2000);
    let mut updates = Vec::new();
    for (position, status) in statuses.iter().enumerate() {
        let at = first + Duration::minutes(40 * i64::try_from(position).unwrap());
        let category = ["marketing", "utility", "service"][rng.below(3)];
        let priced = match rng.below(6) {
            0 | 1 => None,
            2 => Some(free(category, at)),
            3 => Some(Pricing {
                amount: Amount::parse("0.123456"),
                currency: Some("USD".into()),
                source: PricingSource::Platform,
                ..pricing(category, at)
            }),
            _ => Some(pricing(category, at)),
        };
        updates.push((*status, at, priced));
    }
    updates
}

const PHONES: [(&str, &str); 4] = [
    ("+5511961", "BR"),
    ("+351912", "PT"),
    ("+346123", "ES"),
    ("+122255", "US"),
];

/// Messages of a campaign, direct messages and replies.
async fn messages(fixture: &DbFixture, rng: &mut Rng) -> Vec<Message> {
    fixture.add_contacts(24).await;
    for (position, (prefix, _)) in PHONES.iter().enumerate() {
        fixture
            .sql(&format!(
                "UPDATE contacts SET phone = '{prefix}' || right(phone, 6) WHERE right(phone, 3)::int % 4 = {position}"
            ))
            .await;
    }
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let profile = id();
    fixture
        .sql(&format!(
            "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token)
               VALUES ('{account}', '{profile}', 'Loja', '1', '2', '\\x00');
             UPDATE campaigns SET profile_id = '{profile}';
             UPDATE whatsapp_profiles SET verification_state = 'verified'",
            account = fixture.account
        ))
        .await;
    let sends = fixture.in_flight(run, worker, 24).await;
    let template = campaign.template_id.unwrap().to_string();
    let mut found = Vec::new();
    for (kind, count) in [("campaign", sends.len()), ("direct", 24), ("reply", 12)] {
        for position in 0..count {
            let message_id = format!("{kind}-{position}");
            let send = sends.get(position).filter(|_| kind == "campaign").copied();
            let (send_id, own_id, contact) = match send {
                Some(send) => (Some(send), send.0, contact_of(fixture, send).await),
                None => (None, id(), contact_at(fixture, position).await),
            };
            add_message(fixture, kind, own_id, contact.0, profile, &message_id).await;
            let updates = history(rng).into_iter().map(|(status, at, pricing)| StatusUpdate {
                at,
                pricing,
                error_code: (status == SendStatus::Failed).then_some(131_026),
                ..status_update(send_id, &message_id, status)
            });
            let none = String::new;
            found.push(Message {
                send_id,
                message_id: message_id.clone(),
                country: PHONES
                    .iter()
                    .find(|(prefix, _)| contact.1.starts_with(prefix))
                    .unwrap()
                    .1,
                campaign: if kind == "campaign" {
                    campaign.id.to_string()
                } else {
                    none()
                },
                number: profile.to_string(),
                template: if kind == "campaign" { template.clone() } else { none() },
                updates: updates.collect(),
            });
        }
    }
    found
}

async fn add_message(fixture: &DbFixture, kind: &str, id: Uuid, contact: Uuid, profile: Uuid, message_id: &str) {
    let account = fixture.account;
    match kind {
        "direct" => {
            fixture
                .sql(&format!(
                    "INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, wa_message_id,
                       status, started_at, send_at, expires_at, created_by, created_at, updated_at)
                     VALUES ('{account}', '{id}', '{contact}', '{profile}', 'text', '{{}}', '{message_id}', 'sent',
                       now(), now(), now(), '{id}', now(), now())"
                ))
                .await;
        }
        "reply" => {
            fixture
                .sql(&format!(
                    "INSERT INTO conversations (account_id, id, contact_id, profile_id, last_message_at)
                       VALUES ('{account}', '{id}', '{contact}', '{profile}', now());
                     INSERT INTO messages (account_id, id, conversation_id, direction, type, status, wa_message_id,
                       created_at, origin)
                     VALUES ('{account}', '{id}', '{id}', 'outbound', 'text', 'sent', '{message_id}', now(), 'reply')"
                ))
                .await;
        }
        _ => {}
    }
}

async fn contact_of(fixture: &DbFixture, send: SendId) -> (Uuid, String) {
    let query = format!(
        "SELECT c.id || ' ' || c.phone FROM campaign_sends s JOIN contacts c ON c.id = s.contact_id WHERE s.id = '{send}'"
    );
    parsed(&fixture.text(&query).await.unwrap())
}

async fn contact_at(fixture: &DbFixture, position: usize) -> (Uuid, String) {
    let query = format!("SELECT id || ' ' || phone FROM contacts ORDER BY id LIMIT 1 OFFSET {position}");
    parsed(&fixture.text(&query).await.unwrap())
}

fn parsed(text: &str) -> (Uuid, String) {
    let (id, phone) = text.split_once(' ').unwrap();
    (id.parse().unwrap(), phone.to_owned())
}

async fn assert_reports(fixture: &DbFixture, messages: &[Message], has_cards: bool, seed: u64) {
    let window = window();
    for &group_by in CostGroupBy::ALL {
        for only_campaign in [false, true] {
            let mut plain: BTreeMap<(String, String), PlainSums> = BTreeMap::new();
            for message in messages
                .iter()
                .filter(|message| !only_campaign || !message.campaign.is_empty())
            {
                let Some((market, category, currency, sums, since)) = plain_cost(message, has_cards) else {
                    continue;
                };
                let local = (since - Duration::hours(3)).date();
                let key = match group_by {
                    CostGroupBy::Campaign => message.campaign.clone(),
                    CostGroupBy::Category => category,
                    CostGroupBy::Market => market,
                    CostGroupBy::Number => message.number.clone(),
                    CostGroupBy::Template => message.template.clone(),
                    CostGroupBy::Day => (local - window.dates[0]).whole_days().to_string(),
                };
                add(&mut plain, (key, currency), sums);
            }
            let campaign = messages
                .iter()
                .map(|message| &message.campaign)
                .find(|campaign| !campaign.is_empty());
            let campaign = campaign
                .filter(|_| only_campaign)
                .map(|id| id.parse::<Uuid>().unwrap().into());
            let store = PgCosts::new(fixture.tenants.clone());
            let report = store
                .report(fixture.account, &window, group_by, campaign)
                .await
                .unwrap();
            let stored = report.groups.iter().filter(|row| row.sums != CostSums::default());
            let stored: BTreeMap<(String, String), PlainSums> = stored
                .map(|row| ((row.key.clone(), row.currency.clone()), millionths(&row.sums)))
                .collect();
            assert_eq!(stored, plain, "seed {seed}, {group_by}, one campaign: {only_campaign}");
        }
    }
    assert_eq!(differences(fixture).await, Vec::<String>::new(), "seed {seed}");
}

/// Applies every status update one to three times, in any order, in batches of any size.
async fn apply(fixture: &DbFixture, messages: &[Message], rng: &mut Rng) {
    let mut updates: Vec<StatusUpdate> = Vec::new();
    for update in messages.iter().flat_map(|message| &message.updates) {
        for _ in 0..=rng.below(3) {
            updates.push(update.clone());
        }
    }
    rng.shuffle(&mut updates);
    // A failure is final only for a message that was not delivered, so it has no influence on the order here.
    while !updates.is_empty() {
        let rest = updates.split_off((1 + rng.below(20)).min(updates.len()));
        let unmatched = fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
        assert_eq!(unmatched, Vec::<usize>::new());
        updates = rest;
    }
}

#[tokio::test]
async fn cost_reports_equal_a_plain_reckoning() {
    for seed in 1..=4_u64 {
        let fixture = DbFixture::new().await;
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        add_card(&fixture, 1, OLD_CARD).await;
        add_card(&fixture, 2, NEW_CARD).await;
        let messages = messages(&fixture, &mut rng).await;
        assert!(
            messages
                .iter()
                .any(|message| message.send_id.is_some() && !message.message_id.is_empty())
        );
        apply(&fixture, &messages, &mut rng).await;
        assert_reports(&fixture, &messages, true, seed).await;
        // The same statuses again change nothing.
        apply(&fixture, &messages, &mut rng).await;
        assert_reports(&fixture, &messages, true, seed).await;
    }
}

#[tokio::test]
async fn without_a_card_messages_are_unpriced_until_they_are_repriced() {
    let fixture = DbFixture::new().await;
    let mut rng = Rng(0x1234_5678_9abc_def1);
    let messages = messages(&fixture, &mut rng).await;
    apply(&fixture, &messages, &mut rng).await;
    assert_reports(&fixture, &messages, false, 0).await;
    add_card(&fixture, 1, OLD_CARD).await;
    add_card(&fixture, 2, NEW_CARD).await;
    assert_reports(&fixture, &messages, false, 0).await;
    let repriced = PgRollups::new(fixture.owner.clone())
        .reprice(fixture.account)
        .await
        .unwrap();
    assert!(repriced > 0);
    assert_reports(&fixture, &messages, true, 0).await;
}

#[tokio::test]
async fn rebuild_corrects_the_sums_of_costs() {
    let fixture = DbFixture::new().await;
    let mut rng = Rng(77);
    add_card(&fixture, 1, OLD_CARD).await;
    add_card(&fixture, 2, NEW_CARD).await;
    let messages = messages(&fixture, &mut rng).await;
    apply(&fixture, &messages, &mut rng).await;
    fixture
        .sql("UPDATE cost_rollups SET amount = amount + 0.000001, messages = messages - 1 WHERE category = 'utility'")
        .await;
    assert!(!differences(&fixture).await.is_empty());
    PgRollups::new(fixture.owner.clone())
        .rebuild(fixture.account)
        .await
        .unwrap();
    assert_reports(&fixture, &messages, true, 77).await;
}

#[tokio::test]
async fn another_account_sees_no_costs() {
    let fixture = DbFixture::new().await;
    let mut rng = Rng(78);
    let messages = messages(&fixture, &mut rng).await;
    apply(&fixture, &messages, &mut rng).await;
    let other = fixture.another_account().await;
    let store = PgCosts::new(fixture.tenants.clone());
    let report = store
        .report(other, &window(), CostGroupBy::Category, None)
        .await
        .unwrap();
    assert_eq!((report.groups, report.service_messages), (vec![], vec![]));
}

#[tokio::test]
async fn service_messages_are_reported_by_number_and_month() {
    let fixture = DbFixture::new().await;
    let card = "market,currency,category,rate,effective_from,free_per_number_month\n\
        BR,USD,service,0,2026-03-01,1000\n";
    add_card(&fixture, 1, card).await;
    let mut profiles = [id(), id()];
    profiles.sort_unstable();
    for (position, profile) in profiles.iter().enumerate() {
        fixture
            .sql(&format!(
                "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token, created_at)
                   VALUES ('{account}', '{profile}', 'Loja', '{position}', '2', '\\x00', '2026-01-01');
                 INSERT INTO service_message_months (account_id, profile_id, month, messages)
                   VALUES ('{account}', '{profile}', '2026-01-01', 5), ('{account}', '{profile}', '2026-02-01', 7),
                     ('{account}', '{profile}', '2026-03-01', 9), ('{account}', '{profile}', '2026-04-01', 11)",
                account = fixture.account
            ))
            .await;
    }
    let store = PgCosts::new(fixture.tenants.clone());
    let report = store.report(fixture.account, &window(), CostGroupBy::Day, None).await;
    let months: Vec<(Uuid, String, i64, Option<i64>)> = report
        .unwrap()
        .service_messages
        .into_iter()
        .map(|row| (row.profile_id.into(), row.month, row.used, row.free))
        .collect();
    let of = |profile: Uuid| {
        [
            (profile, "2026-02".to_owned(), 7, None),
            (profile, "2026-03".to_owned(), 9, Some(1000)),
        ]
    };
    assert_eq!(months, [of(profiles[0]), of(profiles[1])].concat());
}

#[tokio::test]
async fn used_rate_card_cannot_be_deleted() {
    let fixture = DbFixture::new().await;
    let cards = PgRateCards::new(fixture.owner.clone());
    let unused = add_card(&fixture, 1, NEW_CARD).await;
    let used = add_card(&fixture, 2, OLD_CARD).await;
    let query = |cursor| CursorQuery { cursor, limit: 1 };
    let first = cards.list(&query(None)).await.unwrap();
    assert_eq!((first.data[0].id, first.has_more), (used, true));
    assert_eq!(cards.list(&query(Some(used.0))).await.unwrap().data[0].id, unused);
    let rows = cards.rows(used).await.unwrap().unwrap();
    assert_eq!(rows, parse_rates(OLD_CARD.as_bytes()).unwrap());

    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 1).await;
    let update = StatusUpdate {
        pricing: Some(pricing("marketing", MIDNIGHT - Duration::SECOND)),
        ..status_update(Some(sends[0]), "m", SendStatus::Sent)
    };
    fixture
        .status_updates()
        .apply(fixture.account, &[update])
        .await
        .unwrap();
    for (card, outcome) in [
        (used, CardDeletion::InUse),
        (unused, CardDeletion::Done),
        (unused, CardDeletion::Missing),
    ] {
        let deleted = cards
            .delete(card, entry(&fixture, AuditAction::Delete, card))
            .await
            .unwrap();
        assert_eq!(deleted, outcome);
    }
    let audited = "SELECT string_agg(action || ' ' || entity_type, ', ' ORDER BY id) FROM platform_audit";
    assert_eq!(
        fixture.text(audited).await.as_deref(),
        Some("create rate_card, create rate_card, delete rate_card")
    );
}

/// The update reads the rates of a card that another transaction has deleted and not committed yet.
#[tokio::test]
async fn amount_is_not_taken_from_a_card_that_is_being_deleted() {
    let fixture = DbFixture::new().await;
    let deleted = add_card(&fixture, 1, OLD_CARD).await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 1).await;
    let update = StatusUpdate {
        pricing: Some(pricing("marketing", MIDNIGHT - Duration::SECOND)),
        ..status_update(Some(sends[0]), "m", SendStatus::Delivered)
    };
    fixture
        .sql(&format!("BEGIN; DELETE FROM rate_cards WHERE id = '{}'", deleted.0))
        .await;
    let commit = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        fixture.sql("COMMIT").await;
    };
    let (updates, batch) = (fixture.status_updates(), [update]);
    let (applied, ()) = tokio::join!(updates.apply(fixture.account, &batch), commit);
    applied.unwrap();
    let source = "SELECT pricing ->> 'source' FROM campaign_sends";
    assert_eq!(fixture.text(source).await.as_deref(), Some("none"));
}

/// A run of ten contacts in Brazil with a budget, whose first sends are claimed.
pub(crate) async fn run_with_budget(fixture: &DbFixture, amount: &str) -> (Campaign, QueuedRun, Uuid) {
    fixture.add_contacts(10).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    fixture
        .sql(&format!(
            "UPDATE campaigns SET budget = '{{\"amount\": {amount}, \"currency\": \"USD\"}}', simulated = false"
        ))
        .await;
    (campaign, run, worker)
}

pub(crate) async fn cost_of(fixture: &DbFixture, campaign: &Campaign) -> (String, String) {
    let found = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    let text = |amount: Option<Amount>| amount.map_or("-".to_owned(), |amount| amount.to_string());
    (text(found.cost.amount), text(found.cost.reserved))
}

#[tokio::test]
async fn budget_starts_what_fits_and_gets_back_what_is_not_spent() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "0.25").await;
    let claim = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap();
    let recado_domain::campaigns::ClaimOutcome::Sends(claimed) = claim else {
        panic!()
    };
    let ids: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
    let started = fixture.runs().record_and_start(run, worker, &[], &ids).await.unwrap();
    assert_eq!((started.sends.as_slice(), started.is_over_budget), (&ids[..4], true));
    assert_eq!(cost_of(&fixture, &campaign).await, ("0".into(), "0.25".into()));

    // A failed message gives its rate back, and the results of the batch are recorded before the budget is read.
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "no".into(),
    };
    let sent = |message: &str| SendResult::Sent {
        message_id: Some(message.into()),
        wa_id: None,
    };
    let results = [(ids[0], failed), (ids[1], sent("m1")), (ids[2], sent("m2"))];
    let more = fixture
        .runs()
        .record_and_start(run, worker, &results, &ids[4..])
        .await
        .unwrap();
    assert_eq!((more.sends.as_slice(), more.is_over_budget), (&ids[4..5], true));

    // A price replaces the reservation, and a free message ends it.
    let delivered = |send: SendId, pricing: Pricing| StatusUpdate {
        pricing: Some(pricing),
        ..status_update(Some(send), &send.to_string(), SendStatus::Delivered)
    };
    let batch = [
        delivered(ids[1], pricing("marketing", MIDNIGHT)),
        delivered(ids[2], free("marketing", MIDNIGHT)),
    ];
    for _ in 0..2 {
        fixture.status_updates().apply(fixture.account, &batch).await.unwrap();
        assert_eq!(cost_of(&fixture, &campaign).await, ("0.0625".into(), "0.125".into()));
    }
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
    let again = fixture
        .runs()
        .record_and_start(run, worker, &[], &ids[5..])
        .await
        .unwrap();
    assert_eq!(again.sends, ids[5..6]);
    // A send that did not leave gives its rate back, and can start again.
    fixture
        .runs()
        .record(run, &[(ids[5], SendResult::Released)])
        .await
        .unwrap();
    assert_eq!(cost_of(&fixture, &campaign).await, ("0.0625".into(), "0.125".into()));
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn concurrent_starts_never_exceed_the_budget() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "0.3125").await;
    let claim = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap();
    let recado_domain::campaigns::ClaimOutcome::Sends(claimed) = claim else {
        panic!()
    };
    let ids: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
    // A worker that lost its lease unnoticed may still be in a call, so that two starts of a run can meet.
    let starts = (0..10).map(|position| {
        let (runs, chosen) = (fixture.runs(), [ids[position]]);
        async move {
            runs.record_and_start(run, worker, &[], &chosen)
                .await
                .unwrap()
                .sends
                .len()
        }
    });
    let started: usize = futures_util::future::join_all(starts).await.into_iter().sum();
    assert_eq!(started, 5);
    assert_eq!(cost_of(&fixture, &campaign).await, ("0".into(), "0.3125".into()));
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn run_without_a_budget_reserves_nothing() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    fixture.add_contacts(2).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    assert_eq!(fixture.in_flight(run, worker, 2).await.len(), 2);
    assert_eq!(cost_of(&fixture, &campaign).await, ("-".into(), "-".into()));
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_budgets").await, 0);
}

#[tokio::test]
async fn start_with_a_budget_needs_a_rate_for_every_market() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    fixture.add_contacts(3).await;
    fixture
        .sql("UPDATE contacts SET phone = '+12125550100' WHERE name = 'Contact 1'")
        .await;
    let budget = |currency: &str| {
        Some(Budget {
            amount: 5.into(),
            currency: currency.into(),
        })
    };
    for (currency, markets) in [("USD", vec!["US"]), ("EUR", vec!["BR", "US"])] {
        let campaign = Campaign {
            template_id: Some(fixture.stored_template().await),
            budget: budget(currency),
            ..fixture.draft()
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        let outcome = fixture
            .runs()
            .start(&fixture.start_of(&campaign), None, LEASE)
            .await
            .unwrap();
        let StartOutcome::Refused(CampaignRefusal::NoRate { markets: missing }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(missing, markets);
    }
}
