//! Filter trees over random rows: the SQL selects the same contacts as the plain evaluator, whoever reads them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::campaigns::{
    AudienceFilters, Campaign, CampaignRefusal, CampaignStore, Field, RequiredPlaceholder, RunStart,
    RunStartStore as _, SegmentConfig, StartOutcome,
};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore};
use recado_domain::holds::zone_of_phone;
use recado_domain::ingestion::OrderStatus;
use recado_domain::messaging::SendStatus;
use recado_domain::segments::evaluate::{ContactHistory, PastMetric, PastOrder, PastSend};
use recado_domain::segments::{FilterReference, PreviewOutcome, SegmentDraft, SegmentPreview, SegmentStore};
use recado_domain::shared::{Amount, CampaignId, ContactId, CursorQuery, SegmentId, TagId, ZoneName};
use recado_postgres::PgSegments;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::support::{DbFixture, LEASE, NOW, id};

/// Distances in days never meet a limit of whole days: each kind of row has another fraction.
fn ago(now: OffsetDateTime, days: u8, hours: i64) -> OffsetDateTime {
    now - Duration::days(days.into()) - Duration::hours(hours)
}

fn tag(number: u128) -> TagId {
    TagId(Uuid::from_u128(0x7a6 << 64 | number))
}

fn campaign(number: u128) -> CampaignId {
    CampaignId(Uuid::from_u128(0xca4 << 64 | number))
}

const CAMPAIGNS: u128 = 3;

const ACCOUNT_ZONE: &str = "Europe/Paris";

/// The beginnings of phone numbers.
const PHONES: [Option<&str>; 5] = [None, Some("+55119"), Some("+55929"), Some("+13125"), Some("+33612")];

/// A random contact.
#[derive(Clone, Debug)]
struct Person {
    days: u8,
    email: Option<&'static str>,
    /// The beginning of the phone number.
    phone: Option<&'static str>,
    time_zone: Option<&'static str>,
    opted_out: bool,
    deleted: bool,
    attributes: Vec<(&'static str, Value)>,
    tags: Vec<u128>,
    rfm: Option<&'static str>,
    inbound: Vec<u8>,
    /// The status of each campaign's send, and when it was made.
    sends: Vec<Option<(SendStatus, u8)>>,
    clicks: Vec<Option<u8>>,
    orders: Vec<(OrderStatus, &'static str, u8, &'static str)>,
    metrics: Vec<(&'static str, Option<&'static str>, u8)>,
}

fn person() -> impl Strategy<Value = Person> {
    let contact = (
        0..5_u8,
        prop::sample::select(vec![None, Some(""), Some("a@b.example")]),
        prop::sample::select(PHONES.to_vec()),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
        prop::sample::select(vec![None, None, Some("America/Manaus"), Some("UTC")]),
    );
    let values = vec![
        json!(9),
        json!(10),
        json!("9"),
        json!(2.5),
        json!(null),
        json!(true),
        json!("SP"),
        json!(""),
    ];
    let attributes = prop::collection::vec(
        (prop::sample::select(vec!["a", "b"]), prop::sample::select(values)),
        0..3,
    );
    let marks = (
        attributes,
        prop::sample::subsequence(vec![1, 2], 0..=2),
        prop::sample::select(vec![None, Some("champions"), Some("lost")]),
    );
    let campaigns = usize::try_from(CAMPAIGNS).unwrap();
    let send = prop::option::of((prop::sample::select(SendStatus::ALL.to_vec()), 0..10_u8));
    let order = (
        prop::sample::select(OrderStatus::ALL.to_vec()),
        prop::sample::select(vec!["5", "10", "0.25"]),
        0..5_u8,
        prop::sample::select(vec!["p", "q"]),
    );
    let metric = (
        prop::sample::select(vec!["visit", "buy"]),
        prop::sample::select(vec![None, Some("1"), Some("2.5"), Some("-1")]),
        0..5_u8,
    );
    let history = (
        prop::collection::vec(0..10_u8, 0..3),
        prop::collection::vec(send, campaigns),
        prop::collection::vec(prop::option::weighted(0.3, 0..5_u8), campaigns),
        prop::collection::vec(order, 0..3),
        prop::collection::vec(metric, 0..3),
    );
    (contact, marks, history).prop_map(|(contact, marks, history)| Person {
        days: contact.0,
        email: contact.1,
        phone: contact.2,
        time_zone: contact.5,
        opted_out: contact.3,
        deleted: contact.4,
        attributes: marks.0,
        tags: marks.1,
        rfm: marks.2,
        inbound: history.0,
        sends: history.1,
        clicks: history.2,
        orders: history.3,
        metrics: history.4,
    })
}

impl Person {
    fn zone(&self) -> ZoneName {
        let by_phone = self.phone.and_then(zone_of_phone);
        self.time_zone.or(by_phone).unwrap_or(ACCOUNT_ZONE).parse().unwrap()
    }

    fn history(&self, now: OffsetDateTime) -> ContactHistory {
        let sends = self.sends.iter().zip(0..).filter_map(|(send, number)| {
            let (status, days) = (*send)?;
            let sent = ago(now, days, 12);
            let has = |statuses: &[SendStatus]| statuses.contains(&status);
            use SendStatus::{Delivered, Failed, Read, Sent};
            Some(PastSend {
                campaign: campaign(number),
                status,
                sent_at: has(&[Sent, Delivered, Failed, Read]).then_some(sent),
                // A status may come without the one before it.
                delivered_at: has(&[Delivered]).then_some(sent + Duration::hours(1)),
                read_at: has(&[Read]).then_some(sent + Duration::hours(2)),
                failed_at: has(&[Failed]).then_some(sent + Duration::hours(1)),
            })
        });
        let orders = self.orders.iter().map(|(status, total, days, product)| PastOrder {
            status: *status,
            total: Amount::parse(total).unwrap(),
            placed_at: ago(now, days + 1, 5),
            paid_at: (*status != OrderStatus::Pending).then_some(ago(now, *days, 5)),
            products: vec![(*product).to_owned()],
        });
        let metrics = self.metrics.iter().map(|(name, value, days)| PastMetric {
            name: (*name).to_owned(),
            value: value.and_then(Amount::parse),
            at: ago(now, *days, 7),
        });
        let clicks = self.clicks.iter().zip(0..);
        let clicks = clicks.filter_map(|(days, number)| Some((campaign(number), ago(now, (*days)?, 9))));
        ContactHistory {
            created_at: ago(now, self.days, 11),
            has_phone: self.phone.is_some(),
            time_zone: self.zone(),
            email: self.email.map(ToOwned::to_owned),
            opted_out: self.opted_out,
            attributes: self
                .attributes
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
            tags: self.tags.iter().map(|number| tag(*number)).collect(),
            rfm: self.rfm.map(ToOwned::to_owned),
            inbound: self.inbound.iter().map(|days| ago(now, *days, 3)).collect(),
            sends: sends.collect(),
            clicks: clicks.collect(),
            orders: orders.collect(),
            metrics: metrics.collect(),
        }
    }
}

fn days() -> impl Strategy<Value = Option<u8>> {
    prop::option::of(1..8_u8)
}

/// A comparison with a number, under its key.
fn test(key: &'static str, values: Vec<Value>) -> impl Strategy<Value = (&'static str, Value)> {
    let op = prop::sample::select(vec!["eq", "ne", "lt", "lte", "gt", "gte"]);
    (op, prop::sample::select(values)).prop_map(move |(op, value)| (key, json!({ "op": op, "value": value })))
}

fn tests(sum: &'static str) -> impl Strategy<Value = Option<(&'static str, Value)>> {
    prop::option::of(prop_oneof![
        test("count", vec![json!(0), json!(1), json!(2)]),
        test(sum, vec![json!(0), json!(5), json!(10.25), json!(-1), json!(1)]),
    ])
}

fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        (1..6_u8).prop_map(|days| json!({ "within_days": days })),
        (1..6_u8).prop_map(|days| json!({ "before_days": days })),
    ]
}

fn with(mut condition: Value, test: Option<(&'static str, Value)>) -> Value {
    if let Some((key, test)) = test {
        condition[key] = test;
    }
    condition
}

/// A random condition on the rows of campaigns, orders and metrics.
fn history_condition() -> BoxedStrategy<Value> {
    let outcomes = vec![
        "sent",
        "delivered",
        "read",
        "failed",
        "clicked",
        "replied",
        "not_sent",
        "not_read",
    ];
    let campaign = (prop::option::of(0..CAMPAIGNS), prop::sample::select(outcomes), days());
    let statuses = prop::option::of(prop::sample::select(OrderStatus::ALL.to_vec()));
    let product = prop::option::of(prop::sample::select(vec!["p", "q"]));
    let orders = (tests("total"), statuses, days(), product);
    let metric = (
        tests("sum"),
        prop::sample::select(vec!["visit", "buy", "other"]),
        days(),
    );
    prop_oneof![
        4 => campaign.prop_map(|(id, was, days)| {
            json!({ "campaign": { "id": id.map(self::campaign), "was": was, "within_days": days } })
        }),
        3 => orders.prop_map(|(test, status, days, product)| {
            let orders = json!({ "status": status, "within_days": days, "product_id": product });
            json!({ "orders": with(orders, test) })
        }),
        3 => metric.prop_map(|(test, name, days)| {
            json!({ "metric": with(json!({ "name": name, "within_days": days }), test) })
        }),
    ]
    .boxed()
}

/// A random condition.
fn condition() -> BoxedStrategy<Value> {
    let operators = vec!["eq", "ne", "lt", "lte", "gt", "gte", "contains", "exists", "absent"];
    let values = vec![
        json!(9),
        json!("9"),
        json!(10),
        json!("SP"),
        json!(""),
        json!(true),
        json!(2.5),
    ];
    let attribute = (
        prop::sample::select(vec!["a", "b", "c"]),
        prop::sample::select(operators),
        prop::sample::select(values),
    );
    prop_oneof![
        10 => history_condition(),
        1 => (1..3_u128).prop_map(|number| json!({ "tag": { "id": tag(number) } })),
        1 => attribute.prop_map(|(key, op, value)| json!({ "attribute": { "key": key, "op": op, "value": value } })),
        1 => time().prop_map(|time| json!({ "created": time })),
        1 => prop_oneof![time(), Just(json!({ "never": true }))].prop_map(|time| json!({ "last_inbound": time })),
        1 => prop::sample::subsequence(vec!["champions", "lost"], 1..=2)
            .prop_map(|names| json!({ "rfm": { "segments": names } })),
        1 => any::<bool>().prop_map(|value| json!({ "opted_out": value })),
        1 => any::<bool>().prop_map(|value| json!({ "has_phone": value })),
        1 => any::<bool>().prop_map(|value| json!({ "has_email": value })),
        2 => prop::sample::subsequence(vec![ACCOUNT_ZONE, "Brazil/West", "America/Sao_Paulo", "Zulu"], 1..=3)
            .prop_map(|names| json!({ "time_zone": { "in": names } })),
    ]
    .boxed()
}

fn filters() -> impl Strategy<Value = AudienceFilters> {
    let node = condition().prop_recursive(3, 10, 3, |node| {
        prop_oneof![
            prop::collection::vec(node.clone(), 1..4).prop_map(|nodes| json!({ "all": nodes })),
            prop::collection::vec(node.clone(), 1..4).prop_map(|nodes| json!({ "any": nodes })),
            node.prop_map(|node| json!({ "not": node })),
        ]
    });
    let top = prop_oneof![
        3 => node.clone().prop_map(|node| json!({ "all": [node] })),
        1 => node.clone().prop_map(|node| json!({ "not": node })),
        1 => (node.clone(), node.clone(), any::<bool>())
            .prop_map(|(one, two, has_email)| json!({ "any": [one, two], "has_email": has_email })),
        1 => node.prop_map(|node| json!({ "all": [node], "attributes": { "a": 9 } })),
    ];
    top.prop_filter_map("deeper than the limit", |filters| {
        let filters: AudienceFilters = serde_json::from_value(filters).unwrap();
        filters.nodes().is_ok().then_some(filters)
    })
}

struct World {
    fixture: DbFixture,
    now: OffsetDateTime,
    /// The live contacts.
    contacts: BTreeMap<ContactId, ContactHistory>,
}

fn text(value: Option<impl std::fmt::Display>) -> String {
    value.map_or("NULL".to_owned(), |value| format!("'{value}'"))
}

impl World {
    async fn new(people: &[Person]) -> Self {
        let fixture = DbFixture::new().await;
        let now: String = fixture
            .text("to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
            .await
            .unwrap();
        let now = OffsetDateTime::parse(&now, &time::format_description::well_known::Rfc3339).unwrap();
        let mut world = Self {
            fixture,
            now,
            contacts: BTreeMap::new(),
        };
        let account = world.fixture.account;
        let mut script = format!(
            "SET session_replication_role = replica;
             UPDATE accounts SET plan = 'growth' WHERE id = '{account}';
             INSERT INTO account_settings (account_id, timezone, updated_at) VALUES ('{account}', '{ACCOUNT_ZONE}', now());"
        );
        for number in 0..CAMPAIGNS {
            script += &format!(
                "INSERT INTO campaigns (account_id, id, name, status, frozen_at)
                 VALUES ('{account}', '{}', 'x', 'sent', '{}');",
                campaign(number),
                ago(now, 20, i64::try_from(number).unwrap())
            );
        }
        for (number, person) in people.iter().enumerate() {
            let contact = ContactId(id());
            let history = person.history(now);
            script += &world.rows(number, contact, person, &history);
            if !person.deleted {
                world.contacts.insert(contact, history);
            }
        }
        script += "SET session_replication_role = origin;";
        world.fixture.sql(&script).await;
        // Contacts of another account MUST NOT be selected.
        world
            .fixture
            .add_contacts_to(world.fixture.another_account().await, 3)
            .await;
        world
    }

    fn rows(&self, number: usize, contact: ContactId, person: &Person, history: &ContactHistory) -> String {
        let account = self.fixture.account;
        let mut script = format!(
            "INSERT INTO contacts (account_id, id, name, phone, email, attributes, created_at, deleted_at, opted_out_at,
               time_zone)
             VALUES ('{account}', '{contact}', 'C', {}, {}, '{}', '{}', {}, {}, {});",
            text(person.phone.map(|prefix| format!("{prefix}{number:08}"))),
            text(person.email),
            Value::Object(history.attributes.clone()),
            history.created_at,
            text(person.deleted.then_some(self.now)),
            text(person.opted_out.then_some(self.now)),
            text(person.time_zone),
        );
        for tag in &history.tags {
            script += &format!("INSERT INTO contact_tags VALUES ('{account}', '{contact}', '{tag}');");
        }
        if let Some(rfm) = &history.rfm {
            script += &format!("INSERT INTO contact_rfm VALUES ('{account}', '{contact}', 1, 1, 1, '{rfm}');");
        }
        let last = history.inbound.iter().max();
        script += &format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
             VALUES ('{account}', '{contact}', '{contact}', now(), {});",
            text(last)
        );
        for at in &history.inbound {
            script += &format!(
                "INSERT INTO messages (account_id, id, conversation_id, direction, type, status, created_at)
                 VALUES ('{account}', '{}', '{contact}', 'inbound', 'text', 'received', '{at}');",
                id()
            );
        }
        for send in &history.sends {
            script += &format!(
                "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, sent_at, delivered_at,
                   read_at, failed_at)
                 SELECT '{account}', send_id(frozen_at, id, '{contact}'), id, '{contact}', '{}', {}, {}, {}, {}
                 FROM campaigns WHERE id = '{}';",
                send.status,
                text(send.sent_at),
                text(send.delivered_at),
                text(send.read_at),
                text(send.failed_at),
                send.campaign,
            );
        }
        for (campaign, at) in &history.clicks {
            script += &format!(
                "INSERT INTO links (account_id, id, short_code, original_url, campaign_id, contact_id, clicks,
                   last_clicked_at)
                 VALUES ('{account}', '{0}', '{0}', 'https://x', '{campaign}', '{contact}', 1, '{at}');",
                id()
            );
        }
        script + &self.ingested(contact, history)
    }

    fn ingested(&self, contact: ContactId, history: &ContactHistory) -> String {
        let (account, mut script) = (self.fixture.account, String::new());
        for order in &history.orders {
            script += &format!(
                "INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, placed_at, paid_at)
                 VALUES ('{account}', '{0}', 'loja', '{0}', '{contact}', '{1}', {2}, '{3}', {4});
                 INSERT INTO order_items (account_id, order_id, position, product_id, name, quantity, price)
                 VALUES ('{account}', '{0}', 0, '{5}', 'x', 1, 1);",
                id(),
                order.status,
                order.total,
                order.placed_at,
                text(order.paid_at),
                order.products[0],
            );
        }
        for event in &history.metrics {
            let value = event.value.map_or("NULL".to_owned(), |value| value.to_string());
            script += &format!(
                "INSERT INTO metric_events (account_id, id, metric_name, contact_id, value, source, occurred_at)
                 VALUES ('{account}', '{0}', '{1}', '{contact}', {value}, 'site', '{2}');
                 INSERT INTO metric_contacts AS m VALUES ('{account}', '{1}', '{contact}', 1, coalesce({value}, 0), '{2}')
                 ON CONFLICT (account_id, metric_name, contact_id) DO UPDATE SET event_count = m.event_count + 1,
                   total_value = m.total_value + excluded.total_value;",
                id(),
                event.name,
                event.at,
            );
        }
        script
    }

    fn segments(&self) -> PgSegments {
        PgSegments::new(self.fixture.tenants.clone())
    }

    /// The contacts that the plain evaluator selects.
    fn expected(&self, filters: &AudienceFilters) -> BTreeSet<ContactId> {
        let matching = self
            .contacts
            .iter()
            .filter(|(_, history)| history.matches(filters, self.now));
        matching.map(|(contact, _)| *contact).collect()
    }

    fn reachable(&self, contacts: &BTreeSet<ContactId>) -> BTreeSet<ContactId> {
        let is_reachable = |contact: &&ContactId| {
            let history = &self.contacts[*contact];
            history.has_phone && !history.opted_out
        };
        contacts.iter().filter(is_reachable).copied().collect()
    }

    async fn preview(&self, filters: &AudienceFilters, members: &[ContactId]) -> SegmentPreview {
        let preview = self
            .segments()
            .preview(self.fixture.account, filters, members, 100)
            .await
            .unwrap();
        match preview {
            PreviewOutcome::Done(preview) => preview,
            unexpected => panic!("{unexpected:?}"),
        }
    }

    async fn create(&self, filters: &AudienceFilters) -> SegmentId {
        let draft = SegmentDraft {
            name: "S".into(),
            description: None,
            filters: filters.clone(),
        };
        let segment = self
            .segments()
            .insert(self.fixture.account, id().into(), &draft, NOW)
            .await
            .unwrap();
        let expected = i64::try_from(self.expected(filters).len()).unwrap();
        assert_eq!(segment.members, expected, "{filters:?}");
        segment.id
    }

    async fn listed(&self, segment: SegmentId) -> BTreeSet<ContactId> {
        let query = ContactQuery {
            filter: ContactFilter {
                segment_id: Some(segment),
                ..ContactFilter::default()
            },
            page: CursorQuery {
                cursor: None,
                limit: 100,
            },
        };
        let page = self
            .fixture
            .contacts()
            .list(self.fixture.account, &query)
            .await
            .unwrap();
        page.data.into_iter().map(|contact| contact.id).collect()
    }

    /// Previews and starts a campaign, and returns the contacts of its sends.
    async fn frozen(&self, campaign: Campaign) -> BTreeSet<ContactId> {
        let fixture = &self.fixture;
        let campaign = Campaign {
            template_id: Some(fixture.stored_template().await),
            ..campaign
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        let facts = fixture
            .campaigns()
            .preview_facts(fixture.account, campaign.id, 100)
            .await;
        let facts = facts.unwrap().unwrap();
        let started = fixture
            .runs()
            .start(&fixture.start_of(&campaign), None, LEASE)
            .await
            .unwrap();
        assert!(
            matches!(
                started,
                StartOutcome::Started { .. } | StartOutcome::Refused(CampaignRefusal::NoRecipients)
            ),
            "{started:?}"
        );
        let query = format!(
            "SELECT contact_id::text FROM campaign_sends WHERE campaign_id = '{}'",
            campaign.id
        );
        let rows = fixture.client.query(&query, &[]).await.unwrap();
        let frozen: BTreeSet<ContactId> = rows
            .into_iter()
            .map(|row| ContactId(row.get::<_, &str>(0).parse().unwrap()))
            .collect();
        let previewed: BTreeSet<ContactId> = facts.first.iter().map(|contact| contact.id).collect();
        assert_eq!(previewed, frozen);
        assert_eq!(facts.recipients_by.total(), i64::try_from(frozen.len()).unwrap());
        frozen
    }

    async fn check(&self, filters: &AudienceFilters) {
        let expected = self.expected(filters);
        let reachable = self.reachable(&expected);
        let preview = self.preview(filters, &[]).await;
        let found: Vec<ContactId> = preview.sample.iter().map(|contact| contact.id).collect();
        assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), expected, "{filters:?}");
        assert!(found.is_sorted_by(|one, two| one > two), "newest first");
        assert_eq!(
            (preview.count, preview.reachable),
            (
                i64::try_from(expected.len()).unwrap(),
                i64::try_from(reachable.len()).unwrap()
            )
        );
        let segment = self.create(filters).await;
        assert_eq!(self.listed(segment).await, expected, "{filters:?}");
        let of_segment = Campaign {
            segment_id: Some(segment),
            ..self.fixture.draft()
        };
        assert_eq!(self.frozen(of_segment).await, reachable, "{filters:?}");
        let narrowed = Campaign {
            id: id().into(),
            segment_config: Some(SegmentConfig {
                tag_ids: None,
                filters: Some(filters.clone()),
            }),
            ..self.fixture.draft()
        };
        assert_eq!(self.frozen(narrowed).await, reachable, "{filters:?}");
        let tagged: BTreeSet<ContactId> = reachable
            .iter()
            .filter(|contact| self.contacts[*contact].tags.contains(&tag(1)))
            .copied()
            .collect();
        let of_tag = Campaign {
            id: id().into(),
            segment_config: Some(SegmentConfig {
                tag_ids: Some(vec![tag(1)]),
                filters: Some(filters.clone()),
            }),
            ..self.fixture.draft()
        };
        assert_eq!(self.frozen(of_tag).await, tagged, "{filters:?}");
    }
}

fn random<S: Strategy>(runner: &mut TestRunner, strategy: S) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_select_what_the_evaluator_selects() {
    let mut runner = TestRunner::new(Config::with_cases(1));
    for _ in 0..3 {
        let people = random(&mut runner, prop::collection::vec(person(), 5..25));
        let world = World::new(&people).await;
        for filters in random(&mut runner, prop::collection::vec(filters(), 12)) {
            world.check(&filters).await;
        }
    }
}

/// Each condition alone, its complement, and both together.
#[tokio::test(flavor = "multi_thread")]
async fn not_is_the_complement_among_live_contacts() {
    let mut runner = TestRunner::new(Config::with_cases(1));
    let people = random(&mut runner, prop::collection::vec(person(), 25));
    let world = World::new(&people).await;
    let live: BTreeSet<ContactId> = world.contacts.keys().copied().collect();
    for node in random(&mut runner, prop::collection::vec(condition(), 80)) {
        let select = async |filters: Value| {
            let filters = serde_json::from_value(filters).unwrap();
            let preview = world.preview(&filters, &[]).await;
            let selected: BTreeSet<ContactId> = preview.sample.iter().map(|contact| contact.id).collect();
            assert_eq!(selected, world.expected(&filters), "{filters:?}");
            selected
        };
        let (matching, others) = (
            select(json!({ "all": [node] })).await,
            select(json!({ "not": node })).await,
        );
        assert!(matching.is_disjoint(&others), "{node}");
        assert_eq!(
            matching.union(&others).copied().collect::<BTreeSet<_>>(),
            live,
            "{node}"
        );
    }
}

#[tokio::test]
async fn preview_adds_members_and_names_unknown_ones() {
    let people = vec![simple_person(); 3];
    let world = World::new(&people).await;
    let account = world.fixture.account;
    let contacts: Vec<ContactId> = world.contacts.keys().copied().collect();
    let none = AudienceFilters::default();
    let preview = world.preview(&none, &contacts[..2]).await;
    assert_eq!((preview.count, preview.reachable), (2, 2));
    assert_eq!(world.preview(&none, &[]).await.count, 0);
    let opted_out = serde_json::from_value(json!({ "all": [{ "opted_out": true }] })).unwrap();
    assert_eq!(world.preview(&opted_out, &[contacts[0], contacts[0]]).await.count, 1);
    let unknown = world
        .segments()
        .preview(account, &opted_out, &[contacts[0], ContactId(id())], 10)
        .await;
    assert_eq!(unknown.unwrap(), PreviewOutcome::Unknown(vec![1]));
}

fn simple_person() -> Person {
    Person {
        days: 1,
        email: None,
        phone: Some("+55119"),
        time_zone: None,
        opted_out: false,
        deleted: false,
        attributes: vec![],
        tags: vec![],
        rfm: None,
        inbound: vec![],
        sends: vec![],
        clicks: vec![],
        orders: vec![],
        metrics: vec![],
    }
}

/// WhatsApp's times are whole seconds, so a reply may seem to come before the message.
#[tokio::test]
async fn reply_in_the_second_of_the_message_counts() {
    let mut person = simple_person();
    person.sends = vec![Some((SendStatus::Sent, 1))];
    let world = World::new(&[person]).await;
    let contact = world.contacts.keys().next().unwrap();
    let replied: AudienceFilters =
        serde_json::from_value(json!({ "all": [{ "campaign": { "was": "replied" } }] })).unwrap();
    assert_eq!(world.preview(&replied, &[]).await.count, 0);
    world
        .fixture
        .sql(&format!(
            "UPDATE conversations SET last_inbound_at = (SELECT date_trunc('second', sent_at) FROM campaign_sends);
             INSERT INTO messages (account_id, id, conversation_id, direction, type, status, created_at)
             SELECT account_id, '{}', '{contact}', 'inbound', 'text', 'received', date_trunc('second', sent_at)
             FROM campaign_sends",
            id()
        ))
        .await;
    assert_eq!(world.preview(&replied, &[]).await.count, 1);
}

#[tokio::test]
async fn foreign_references_are_unknown() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    let store = PgSegments::new(fixture.tenants.clone());
    for account in [fixture.account, other] {
        fixture
            .sql(&format!(
                "INSERT INTO tags (account_id, id, name) VALUES ('{account}', md5('{account}')::uuid, 't');
                 INSERT INTO campaigns (account_id, id, name, deleted_at) VALUES ('{account}', md5('{account}')::uuid, 'c', NULL),
                   ('{account}', md5('gone {account}')::uuid, 'c', now());
                 INSERT INTO product_names VALUES ('{account}', 'p {account}', 'P')"
            ))
            .await;
    }
    let key = async |of: &str| -> Uuid {
        fixture
            .text(&format!("md5('{of}')::uuid"))
            .await
            .unwrap()
            .parse()
            .unwrap()
    };
    let (own, foreign) = (key(&fixture.account.to_string()).await, key(&other.to_string()).await);
    let gone = key(&format!("gone {}", fixture.account)).await;
    let references = [
        FilterReference::Tag(own.into()),
        FilterReference::Tag(foreign.into()),
        FilterReference::Campaign(own.into()),
        FilterReference::Campaign(foreign.into()),
        FilterReference::Campaign(gone.into()),
        FilterReference::Product(format!("p {}", fixture.account)),
        FilterReference::Product(format!("p {other}")),
    ];
    let references = references.into_iter().enumerate();
    let references: Vec<_> = references
        .map(|(index, reference)| (index.to_string(), reference))
        .collect();
    let unknown = store.unknown_references(fixture.account, &references).await.unwrap();
    assert_eq!(unknown, ["1", "3", "4", "6"]);
    let filters: AudienceFilters = serde_json::from_value(json!({ "not": { "tag": { "id": foreign } } })).unwrap();
    let campaign = Campaign {
        segment_config: Some(SegmentConfig {
            tag_ids: None,
            filters: Some(filters),
        }),
        ..fixture.draft()
    };
    let unknown = fixture
        .campaigns()
        .unknown_references(fixture.account, &campaign)
        .await
        .unwrap();
    assert_eq!(unknown, ["segment_config.filters.not.tag.id"]);
}

#[tokio::test]
async fn newcomers_are_those_without_an_earlier_campaign() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let account = fixture.account;
    let names = async |campaign: &Campaign| {
        let facts = fixture.campaigns().preview_facts(account, campaign.id, 10).await;
        let facts = facts.unwrap().unwrap();
        assert_eq!(facts.recipients_by.total(), i64::try_from(facts.first.len()).unwrap());
        facts.first.len()
    };
    let campaign = async || {
        let campaign = Campaign {
            id: id().into(),
            template_id: Some(fixture.stored_template().await),
            newcomers_only: true,
            ..fixture.draft()
        };
        fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        assert_eq!(
            fixture.campaigns().find(account, campaign.id).await.unwrap().as_ref(),
            Some(&campaign)
        );
        campaign
    };
    let first = campaign().await;
    assert_eq!(names(&first).await, 3);
    // One has a send of another campaign, and one waits in a recipient batch.
    fixture
        .sql(&format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id)
             SELECT '{account}', '{0}', '{0}', min(id::text)::uuid FROM contacts WHERE account_id = '{account}'",
            id()
        ))
        .await;
    assert_eq!(names(&first).await, 2);
    fixture
        .sql(&format!(
            "INSERT INTO campaigns (account_id, id, name) VALUES ('{account}', '{0}', 'x');
             INSERT INTO campaign_recipient_batches (account_id, campaign_id, batch_no, contact_ids, created_at)
             SELECT '{account}', '{0}', 0, ARRAY[max(id::text)::uuid], now() FROM contacts WHERE account_id = '{account}'",
            id()
        ))
        .await;
    assert_eq!(names(&first).await, 1);
    let started = fixture
        .runs()
        .start(&fixture.start_of(&first), None, LEASE)
        .await
        .unwrap();
    assert_eq!(started, StartOutcome::Started { recipients: 1 });
    assert_eq!(names(&campaign().await).await, 0);
}

/// A draft to newcomers that is stored.
async fn stored_draft(fixture: &DbFixture, newcomers_only: bool) -> Campaign {
    let campaign = Campaign {
        id: id().into(),
        template_id: Some(fixture.stored_template().await),
        newcomers_only,
        ..fixture.draft()
    };
    fixture.campaigns().insert(&campaign, &[]).await.unwrap();
    campaign
}

#[tokio::test]
async fn placeholder_of_a_newcomer_must_not_stay_empty() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let campaign = stored_draft(&fixture, true).await;
    let start = RunStart {
        required_placeholders: vec![RequiredPlaceholder {
            placeholder: "2".into(),
            fields: vec![Field::Attribute("cupom".into())],
        }],
        ..fixture.start_of(&campaign)
    };
    let started = fixture.runs().start(&start, None, LEASE).await.unwrap();
    assert!(
        matches!(started, StartOutcome::Refused(CampaignRefusal::EmptyPlaceholder { .. })),
        "{started:?}"
    );
}

/// The first start has frozen its audience and has not committed when the other one begins.
#[tokio::test]
async fn recipients_of_a_concurrent_start_are_no_newcomers() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (all, newcomers) = (stored_draft(&fixture, false).await, stored_draft(&fixture, true).await);
    fixture
        .sql(
            "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$;
             CREATE TRIGGER dawdle AFTER INSERT ON campaign_queue FOR EACH STATEMENT EXECUTE FUNCTION dawdle()",
        )
        .await;
    let (first, second) = (fixture.start_of(&all), fixture.start_of(&newcomers));
    let runs = fixture.runs();
    let later = async {
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        runs.start(&second, None, LEASE).await.unwrap()
    };
    let (first, second) = tokio::join!(runs.start(&first, None, LEASE), later);
    assert_eq!(first.unwrap(), StartOutcome::Started { recipients: 2 });
    assert_eq!(second, StartOutcome::Refused(CampaignRefusal::NoRecipients));
}
