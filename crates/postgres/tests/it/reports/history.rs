//! Random ingestion steps, and a plain model of what the rules make of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use recado_domain::automations::{AutomationStore, Execution, ExecutionStatus};
use recado_domain::ingestion::{
    AdSpendInput, CartInput, EventInput, Granularity, Ingestion, OrderInput, OrderItemInput,
};
use recado_domain::links::{ClickBatch, ClickKey, LinkStore};
use recado_domain::shared::{Amount, Ids};
use recado_postgres::{PgAutomations, PgIngestion, PgLinks};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Fixed, NOW};
use crate::support::{DbFixture, id, id_at};

/// Units per currency unit: the product of two amounts of four decimals is a whole number of units.
pub(super) const UNIT: i128 = 100_000_000;

#[derive(Clone, Debug)]
pub(super) struct OrderSpec {
    key: u8,
    platform: u8,
    phone: Option<u8>,
    status: usize,
    total: i64,
    items: Vec<(u8, i64, i64, Option<i64>)>,
    fee: Option<i64>,
    named: [bool; 3],
    placed: i64,
    paid: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Orders(Vec<OrderSpec>),
    /// Key, status and minutes before `NOW`.
    Carts(Vec<(u8, usize, i64)>),
    /// Days before `NOW`, source and amount.
    Spend(Vec<(i64, u8, i64)>),
    /// Id, metric, contact (3: unknown phone), value and minutes before `NOW`.
    Events(Vec<(u8, usize, u8, Option<i64>, i64)>),
    /// Id, automation, whether it completed, minutes before `NOW` and duration in milliseconds.
    Executions(Vec<(u8, usize, bool, i64, i64)>),
    /// Link and minutes before `NOW`.
    Click(usize, i64),
}

/// Minutes before `NOW`: mostly in the last days, often at a quarter of an hour, where a day of some zone begins.
fn minutes() -> impl Strategy<Value = i64> {
    let quarters = (0..8 * 96_i64).prop_map(|quarters| quarters * 15);
    prop_oneof![quarters, 0..8 * 1440_i64, 0..100 * 1440_i64]
}

fn order() -> impl Strategy<Value = OrderSpec> {
    let item = (
        0..4_u8,
        1..50_000_i64,
        0..2_000_000_i64,
        prop::option::of(0..1_000_000_i64),
    );
    let parts = (
        prop::option::of(0..4_u8),
        0..4_usize,
        0..90_000_000_i64,
        prop::collection::vec(item, 0..4),
        prop::option::of(0..50_000_i64),
        prop::array::uniform3(prop::bool::weighted(0.2)),
        minutes(),
        prop::option::of(minutes()),
    );
    ((0..6_u8, 0..2_u8), parts).prop_map(|((key, platform), parts)| {
        let (phone, status, total, items, fee, named, placed, paid) = parts;
        OrderSpec {
            key,
            platform,
            phone,
            status,
            total,
            items,
            fee,
            named,
            placed,
            paid,
        }
    })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let event = (
        0..30_u8,
        0..2_usize,
        0..4_u8,
        prop::option::of(-90_000_i64..900_000),
        minutes(),
    );
    let execution = (0..20_u8, 0..2_usize, any::<bool>(), minutes(), 0..90_000_i64);
    prop_oneof![
        6 => prop::collection::vec(order(), 1..5).prop_map(Step::Orders),
        2 => prop::collection::vec((0..6_u8, 0..3_usize, minutes()), 1..5).prop_map(Step::Carts),
        2 => prop::collection::vec((0..100_i64, 0..2_u8, 0..9_000_000_i64), 1..5).prop_map(Step::Spend),
        4 => prop::collection::vec(event, 1..8).prop_map(Step::Events),
        2 => prop::collection::vec(execution, 1..5).prop_map(Step::Executions),
        1 => (0..2_usize, minutes()).prop_map(|(link, ago)| Step::Click(link, ago)),
    ]
}

/// An order of the model. Amounts are in units.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) platform: String,
    pub(super) status: &'static str,
    pub(super) total: i128,
    pub(super) fee: i128,
    /// Product, quantity in ten thousandths, revenue and costs.
    pub(super) items: Vec<(String, i128, i128, i128)>,
    pub(super) campaign: Option<Uuid>,
    pub(super) automation: Option<Uuid>,
    pub(super) link: Option<Uuid>,
    pub(super) placed: OffsetDateTime,
    pub(super) paid: Option<OffsetDateTime>,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) metric: &'static str,
    pub(super) contact: Option<Uuid>,
    pub(super) value: i128,
    pub(super) at: OffsetDateTime,
}

pub(super) struct History {
    ingestion: Ingestion,
    links: PgLinks,
    executions: PgAutomations,
    pub(super) contacts: Vec<Uuid>,
    campaigns: Vec<Uuid>,
    automations: Vec<Uuid>,
    pub(super) link_ids: Vec<Uuid>,
    pub(super) orders: BTreeMap<(u8, u8), Order>,
    pub(super) names: BTreeMap<String, String>,
    pub(super) carts: BTreeMap<u8, (usize, OffsetDateTime)>,
    pub(super) spend: BTreeMap<(i64, u8), i128>,
    pub(super) events: BTreeMap<u8, Event>,
    pub(super) runs: BTreeMap<u8, (Uuid, bool, OffsetDateTime, i64)>,
    pub(super) clicks: Vec<(Uuid, OffsetDateTime)>,
}

const STATUSES: [&str; 4] = ["pending", "paid", "cancelled", "refunded"];
const CARTS: [&str; 3] = ["open", "abandoned", "recovered"];
pub(super) const METRICS: [&str; 2] = ["visit", "a/b c"];
/// When campaigns 0 and 1 sent to contact 0, in minutes before `NOW`.
const SENT: [i64; 2] = [5 * 1440, 2 * 1440];
const WEEK: i64 = 7 * 1440;

struct Numbered;

impl Ids for Numbered {
    fn next(&self) -> Uuid {
        id()
    }
}

fn ago(minutes: i64) -> OffsetDateTime {
    NOW - Duration::minutes(minutes)
}

/// The amount of `number` ten thousandths.
fn ten_thousandths(number: i64) -> Option<Amount> {
    let sign = if number < 0 { "-" } else { "" };
    Amount::parse(&format!("{sign}{}.{:04}", number.abs() / 10_000, number.abs() % 10_000))
}

fn units(number: i64) -> i128 {
    i128::from(number) * UNIT / 10_000
}

fn phone(contact: u8) -> String {
    format!("1196000000{contact}")
}

impl History {
    pub(super) async fn begin(fixture: &DbFixture) -> Self {
        let account = fixture.account;
        let ids = |count: usize| -> Vec<Uuid> { (0..count).map(|_| id()).collect() };
        let (contacts, campaigns, automations, link_ids) = (ids(3), ids(2), ids(2), ids(2));
        let mut statements = String::new();
        for (at, contact) in contacts.iter().enumerate() {
            statements += &format!(
                "INSERT INTO contacts (account_id, id, name, phone)
                VALUES ('{account}', '{contact}', 'Contact {at}', '+551196000000{at}');"
            );
        }
        for (at, (campaign, automation)) in campaigns.iter().zip(&automations).enumerate() {
            statements += &format!("INSERT INTO campaigns (account_id, id, name) VALUES ('{account}', '{campaign}', 'c');
                INSERT INTO automations (account_id, id, name, status) VALUES ('{account}', '{automation}', 'a', 'active');
                INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, sent_at)
                VALUES ('{account}', '{}', '{campaign}', '{}', 'read', '{}'),
                  ('{account}', '{}', '{campaign}', '{}', 'failed', '{}');",
                id_at(ago(SENT[at])), contacts[0], ago(SENT[at]), id_at(ago(SENT[at])), contacts[1], ago(SENT[at]));
        }
        for (at, link) in link_ids.iter().enumerate() {
            let campaign = if at == 0 {
                format!("'{}'", campaigns[1])
            } else {
                "NULL".into()
            };
            statements += &format!(
                "INSERT INTO links (account_id, id, short_code, original_url, campaign_id)
                VALUES ('{account}', '{link}', 'code{at}', 'https://loja.example', {campaign});
                INSERT INTO link_codes VALUES ('code{at}', '{account}', '{link}');"
            );
        }
        fixture.sql(&statements).await;
        Self {
            ingestion: Ingestion::new(
                Arc::new(PgIngestion::new(fixture.tenants.clone())),
                Arc::new(Fixed),
                Arc::new(Numbered),
            ),
            links: PgLinks::new(fixture.tenants.clone(), fixture.owner.clone()),
            executions: PgAutomations::new(fixture.tenants.clone()),
            contacts,
            campaigns,
            automations,
            link_ids,
            orders: BTreeMap::new(),
            names: BTreeMap::new(),
            carts: BTreeMap::new(),
            spend: BTreeMap::new(),
            events: BTreeMap::new(),
            runs: BTreeMap::new(),
            clicks: vec![],
        }
    }

    pub(super) async fn play(&mut self, fixture: &DbFixture, step: Step) {
        match step {
            Step::Orders(specs) => self.order(fixture, &specs).await,
            Step::Carts(carts) => self.cart(fixture, &carts).await,
            Step::Spend(entries) => self.spend(fixture, &entries).await,
            Step::Events(events) => self.event(fixture, &events).await,
            Step::Executions(executions) => self.execute(fixture, &executions).await,
            Step::Click(link, minutes) => {
                let target = self.links.target(&format!("code{link}")).await.unwrap().unwrap();
                assert_eq!(target.original_url, "https://loja.example");
                let key = ClickKey {
                    account_id: target.account_id,
                    link_id: target.link_id,
                    quarter: Granularity::Quarter.begin(ago(minutes)),
                };
                let batch = ClickBatch {
                    writer: id(),
                    number: 1,
                    clicks: vec![(key, 1)],
                };
                assert_eq!(self.links.add_clicks(&batch).await.unwrap(), []);
                self.clicks.push((self.link_ids[link], ago(minutes)));
            }
        }
    }

    async fn order(&mut self, fixture: &DbFixture, specs: &[OrderSpec]) {
        let inputs = specs.iter().map(|spec| self.input(spec)).collect();
        let recorded = self.ingestion.orders(fixture.account, inputs).await.unwrap();
        assert_eq!(recorded.accepted + recorded.duplicates, specs.len());
        // The last draft of an order wins.
        let last: BTreeMap<_, _> = specs.iter().map(|spec| ((spec.platform, spec.key), spec)).collect();
        for spec in last.values() {
            self.apply_order(spec);
        }
    }

    fn input(&self, spec: &OrderSpec) -> OrderInput {
        let items = spec
            .items
            .iter()
            .map(|(product, quantity, price, cost)| OrderItemInput {
                product_id: Some(format!("p{product}")),
                name: Some(format!("Produto {product}")),
                quantity: ten_thousandths(*quantity),
                price: ten_thousandths(*price),
                cost: cost.and_then(ten_thousandths),
            });
        let [campaign, automation, link] = spec.named;
        OrderInput {
            external_id: Some(spec.key.to_string()),
            platform: Some(format!("loja{}", spec.platform)),
            contact_phone: spec.phone.map(phone),
            status: Some(STATUSES[spec.status].into()),
            total: ten_thousandths(spec.total),
            items: Some(items.collect()),
            gateway_fee: spec.fee.and_then(ten_thousandths),
            campaign_id: campaign.then(|| self.campaigns[0].into()),
            automation_id: automation.then(|| self.automations[0].into()),
            link_code: link.then(|| format!("code{}", spec.key % 2)),
            placed_at: Some(ago(spec.placed)),
            paid_at: spec.paid.map(ago),
        }
    }

    /// Applies an order to the model.
    fn apply_order(&mut self, spec: &OrderSpec) {
        let before = self.orders.get(&(spec.platform, spec.key)).cloned();
        let status = STATUSES[spec.status];
        let mut paid = spec.paid.map(ago).or(before.as_ref().and_then(|order| order.paid));
        if status == "paid" && paid.is_none() {
            paid = Some(ago(spec.placed));
        }
        let (campaign, automation, link) = match &before {
            Some(order) if !spec.named.contains(&true) => (order.campaign, order.automation, order.link),
            _ => self.attribution(spec),
        };
        let items = spec.items.iter().map(|(product, quantity, price, cost)| {
            let quantity = i128::from(*quantity);
            self.names.insert(format!("p{product}"), format!("Produto {product}"));
            let costs = quantity * i128::from(cost.unwrap_or(0));
            (format!("p{product}"), quantity, quantity * i128::from(*price), costs)
        });
        let order = Order {
            platform: format!("loja{}", spec.platform),
            status,
            total: units(spec.total),
            fee: spec.fee.map(units).or(before.map(|order| order.fee)).unwrap_or(0),
            items: items.collect(),
            campaign,
            automation,
            link,
            placed: ago(spec.placed),
            paid,
        };
        self.orders.insert((spec.platform, spec.key), order);
    }

    fn attribution(&self, spec: &OrderSpec) -> (Option<Uuid>, Option<Uuid>, Option<Uuid>) {
        let [campaign, automation, link] = spec.named;
        let link_number = usize::from(spec.key % 2);
        let link_campaign = (link && link_number == 0).then(|| self.campaigns[1]);
        if campaign || automation || link {
            return (
                if campaign {
                    Some(self.campaigns[0])
                } else {
                    link_campaign
                },
                automation.then(|| self.automations[0]),
                link.then(|| self.link_ids[link_number]),
            );
        }
        let within = |sent: i64| spec.placed <= sent && sent <= spec.placed + WEEK;
        let last = [1, 0].into_iter().find(|at| within(SENT[*at]));
        let campaign = last.filter(|_| spec.phone == Some(0)).map(|at| self.campaigns[at]);
        (campaign, None, None)
    }

    async fn cart(&mut self, fixture: &DbFixture, carts: &[(u8, usize, i64)]) {
        let inputs = carts.iter().map(|(key, status, minutes)| CartInput {
            external_id: Some(key.to_string()),
            platform: Some("loja".into()),
            contact_phone: None,
            total: ten_thousandths(10_000),
            status: Some(CARTS[*status].into()),
            created_at: Some(ago(*minutes)),
        });
        self.ingestion.carts(fixture.account, inputs.collect()).await.unwrap();
        for (key, status, minutes) in carts {
            self.carts.insert(*key, (*status, ago(*minutes)));
        }
    }

    async fn spend(&mut self, fixture: &DbFixture, entries: &[(i64, u8, i64)]) {
        let inputs = entries.iter().map(|(days, source, amount)| AdSpendInput {
            date: Some((NOW.date() - Duration::days(*days)).to_string()),
            source: Some(format!("s{source}")),
            amount: ten_thousandths(*amount),
        });
        self.ingestion
            .ad_spend(fixture.account, inputs.collect())
            .await
            .unwrap();
        for (days, source, amount) in entries {
            self.spend.insert((*days, *source), units(*amount));
        }
    }

    async fn event(&mut self, fixture: &DbFixture, events: &[(u8, usize, u8, Option<i64>, i64)]) {
        let inputs = events
            .iter()
            .map(|(number, metric, contact, value, minutes)| EventInput {
                id: Some(Uuid::from_u128(u128::from(*number)).into()),
                metric_name: Some(METRICS[*metric].into()),
                contact_phone: Some(phone(*contact)),
                value: value.and_then(ten_thousandths),
                source: Some(format!("s{}", contact % 2)),
                occurred_at: Some(ago(*minutes)),
                ..EventInput::default()
            });
        self.ingestion.events(fixture.account, inputs.collect()).await.unwrap();
        for (number, metric, contact, value, minutes) in events {
            self.events.entry(*number).or_insert_with(|| Event {
                metric: METRICS[*metric],
                contact: self.contacts.get(usize::from(*contact)).copied(),
                value: value.map_or(0, units),
                at: ago(*minutes),
            });
        }
    }

    async fn execute(&mut self, fixture: &DbFixture, executions: &[(u8, usize, bool, i64, i64)]) {
        for (number, automation, completed, minutes, milliseconds) in executions {
            let automation = self.automations[*automation];
            let execution = Execution {
                id: Uuid::from_u128(u128::from(*number)).into(),
                status: if *completed {
                    ExecutionStatus::Completed
                } else {
                    ExecutionStatus::Failed
                },
                started_at: ago(*minutes),
                finished_at: ago(*minutes) + Duration::milliseconds(*milliseconds),
            };
            let recorded = self
                .executions
                .record(fixture.account, automation.into(), &[execution], NOW)
                .await;
            assert!(recorded.unwrap().is_some());
            let run = (automation, *completed, ago(*minutes), *milliseconds);
            self.runs.entry(*number).or_insert(run);
        }
    }
}
