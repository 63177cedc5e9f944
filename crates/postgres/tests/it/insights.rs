//! Insights: after any history, every report equals a recount of the rows in every time zone. The stored counts
//! survive concurrent writes.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::analytics::{HeatCell, InsightStore, MessageCounts, NewSince, Period, Window, Zone};
use recado_domain::callbacks::StatusUpdateStore;
use recado_domain::campaigns::{SendResult, SendStore as _};
use recado_domain::contacts::{ContactDraft, ContactStore, ImportRow, Phone};
use recado_domain::conversations::{
    ConversationStatus, ConversationStore, InboundEvent, InboundItem, InboundMessage, InboxStore, ReplyDraft,
    ReplyResult, Sender,
};
use recado_domain::messaging::SendStatus;
use recado_domain::rollups::RollupStore;
use recado_domain::shared::{ContactId, ConversationId, ProfileId};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::{PgConversations, PgInsights, PgProfiles, PgRollups};
use time::macros::datetime;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use crate::conversations::reply_draft;
use crate::status_updates::status_update;
use crate::support::{DbFixture, id, id_at};
use crate::whatsapp::profile;

/// The day after Lord Howe set its clocks back by half an hour; in Kathmandu the next day has begun.
const BASE: OffsetDateTime = datetime!(2026-04-06 18:20 UTC);
const ZONES: [&str; 4] = ["UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"];
const NUMBER: &str = "111";

#[derive(Clone, Debug)]
enum Step {
    /// A contact wrote this number of minutes ago.
    Inbound(u8, i64),
    Reply(usize, i64),
    Record(usize, u8),
    StatusUpdate(usize, SendStatus),
    Set(usize, ConversationStatus),
    Add(u8, i64),
    Import(Vec<u8>, i64),
    Delete(usize),
    /// A campaign to all contacts, started this number of minutes ago, with the statuses of its sends.
    Campaign(i64, Vec<Option<SendStatus>>, bool),
}

fn step() -> impl Strategy<Value = Step> {
    // Minutes before `BASE`: the last two days, the last hundred days, and around the clock change.
    let ago = || prop_oneof![0..3_000_i64, 0..144_000_i64, 1_500..3_300_i64];
    let which = || 0..40_usize;
    prop_oneof![
        5 => (0..6_u8, ago()).prop_map(|(who, ago)| Step::Inbound(who, ago)),
        4 => (which(), ago()).prop_map(|(at, ago)| Step::Reply(at, ago)),
        2 => (which(), 0..3_u8).prop_map(|(at, result)| Step::Record(at, result)),
        5 => (which(), prop::sample::select(SendStatus::ALL)).prop_map(|(at, status)| Step::StatusUpdate(at, status)),
        2 => (which(), prop::sample::select(ConversationStatus::ALL)).prop_map(|(at, status)| Step::Set(at, status)),
        1 => (0..9_u8, ago()).prop_map(|(who, ago)| Step::Add(who, ago)),
        1 => (prop::collection::vec(0..9_u8, 1..4), ago()).prop_map(|(who, ago)| Step::Import(who, ago)),
        1 => which().prop_map(Step::Delete),
        2 => (ago(), prop::collection::vec(prop::option::of(prop::sample::select(SendStatus::ALL)), 1..6), any::<bool>())
            .prop_map(|(ago, sends, deleted)| Step::Campaign(ago, sends, deleted)),
    ]
}

/// Runs a history in its own account.
struct History<'a> {
    fixture: &'a DbFixture,
    profile: ProfileId,
}

fn minutes_ago(ago: i64) -> OffsetDateTime {
    BASE - Duration::minutes(ago)
}

fn phone(who: u8) -> Phone {
    Phone::parse(&format!("+551196000000{who}")).unwrap()
}

fn draft(who: u8) -> ContactDraft {
    ContactDraft {
        name: format!("C{who}"),
        phone: Some(phone(who)),
        email: None,
        wa_user_id: None,
        time_zone: None,
        attributes: serde_json::Map::new(),
        opted_out: None,
    }
}

fn inbound(who: u8, ago: i64) -> InboundItem {
    let message = InboundMessage {
        wa_message_id: id().to_string(),
        sender: Sender {
            wa_id: Some(format!("551196000000{who}")),
            user_id: None,
            name: None,
            ..Sender::default()
        },
        at: minutes_ago(ago),
        kind: "text".into(),
        text: Some("oi".into()),
        can_opt_out: true,
        answered_wa_id: None,
        referral: None,
        payload: serde_json::Value::Null,
        caption: None,
        interactive: None,
        quoted: None,
        file: None,
    };
    InboundItem {
        event: InboundEvent::Message(message),
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
        media_id: id().into(),
    }
}

fn reply(conversation: ConversationId, ago: i64, profile: ProfileId) -> ReplyDraft {
    let at = minutes_ago(ago);
    reply_draft(conversation, id_at(at), at, profile)
}

impl History<'_> {
    fn conversations(&self) -> PgConversations {
        PgConversations::new(self.fixture.tenants.clone(), self.fixture.owner.clone())
    }

    /// The id of one matching row, chosen by its position modulo the number of rows.
    async fn pick(&self, table: &str, condition: &str, at: usize) -> Option<Uuid> {
        let account = self.fixture.account;
        let from = format!("FROM {table} WHERE account_id = '{account}' AND {condition}");
        let count = self.fixture.number(&format!("SELECT count(*) {from}")).await;
        let at = i64::try_from(at).unwrap().checked_rem(count)?;
        let row = format!("SELECT id {from} ORDER BY id OFFSET {at} LIMIT 1");
        Some(self.fixture.text(&row).await?.parse().unwrap())
    }

    async fn play(&self, step: Step) {
        let (fixture, account) = (self.fixture, self.fixture.account);
        match step {
            Step::Inbound(who, ago) => {
                let inbox = crate::conversations::inbox(fixture);
                inbox.receive(account, NUMBER, &[inbound(who, ago)]).await.unwrap();
            }
            Step::Reply(at, ago) => {
                let Some(conversation) = self.pick("conversations", "true", at).await else {
                    return;
                };
                let reply = reply(conversation.into(), ago, self.profile);
                self.conversations().begin_reply(account, &reply).await.unwrap();
            }
            Step::Record(at, result) => {
                let Some(reply) = self.pick("messages", "direction = 'outbound'", at).await else {
                    return;
                };
                let result = match result {
                    0 => ReplyResult::Sent {
                        message_id: id().to_string(),
                        wa_id: None,
                    },
                    1 => ReplyResult::Failed {
                        message: "no".into(),
                        opted_out: false,
                    },
                    _ => ReplyResult::Unknown,
                };
                self.conversations()
                    .record_reply(account, reply.into(), &result)
                    .await
                    .unwrap();
            }
            Step::StatusUpdate(at, status) => {
                let Some(message) = self.pick("messages", "direction = 'outbound'", at).await else {
                    return;
                };
                let update = status_update(Some(message.into()), &message.to_string(), status);
                fixture.status_updates().apply(account, &[update]).await.unwrap();
            }
            Step::Set(at, status) => {
                let Some(conversation) = self.pick("conversations", "true", at).await else {
                    return;
                };
                self.conversations()
                    .set_status(account, conversation.into(), status)
                    .await
                    .unwrap();
            }
            Step::Add(who, ago) => {
                let (contacts, draft) = (fixture.contacts(), draft(who));
                // Another contact may already have the phone.
                contacts
                    .insert(account, id().into(), &draft, &[], minutes_ago(ago))
                    .await
                    .ok();
            }
            Step::Import(who, ago) => self.import(&who, ago).await,
            Step::Delete(at) => {
                let Some(contact) = self.pick("contacts", "deleted_at IS NULL", at).await else {
                    return;
                };
                fixture.contacts().delete(account, contact.into(), BASE).await.unwrap();
            }
            Step::Campaign(ago, sends, deleted) => self.campaign(ago, sends, deleted).await,
        }
    }

    async fn import(&self, who: &[u8], ago: i64) {
        let mut who = who.to_vec();
        who.sort_unstable();
        who.dedup();
        let rows: Vec<ImportRow> = who
            .iter()
            .map(|&who| ImportRow {
                contact: draft(who),
                tags: vec![],
            })
            .collect();
        let ids: Vec<ContactId> = rows.iter().map(|_| id().into()).collect();
        let contacts = self.fixture.contacts();
        contacts
            .upsert(self.fixture.account, &ids, &rows, minutes_ago(ago))
            .await
            .unwrap();
    }

    async fn campaign(&self, ago: i64, statuses: Vec<Option<SendStatus>>, deleted: bool) {
        let (fixture, account) = (self.fixture, self.fixture.account);
        if self
            .pick("contacts", "deleted_at IS NULL AND opted_out_at IS NULL", 0)
            .await
            .is_none()
        {
            return;
        }
        let worker = id();
        let (campaign, run) = fixture.started(worker).await;
        let sends = fixture.in_flight(run, worker, 5).await;
        for (send, status) in sends.into_iter().zip(statuses) {
            let Some(status) = status else { continue };
            let sent = SendResult::Sent {
                message_id: None,
                wa_id: None,
            };
            fixture.runs().record(run, &[(send, sent)]).await.unwrap();
            let update = status_update(Some(send), &send.to_string(), status);
            fixture.status_updates().apply(account, &[update]).await.unwrap();
        }
        let (id, at) = (campaign.id, minutes_ago(ago));
        // Dates the run back and leases it forever, so that no worker claims it again.
        fixture
            .sql(&format!(
                "UPDATE campaigns SET executed_at = '{at}', deleted_at = CASE WHEN {deleted} THEN now() END
                   WHERE id = '{id}';
                 UPDATE campaign_sends SET created_at = '{at}' WHERE campaign_id = '{id}';
                 UPDATE campaign_counter_slots SET created_at = '{at}' WHERE campaign_id = '{id}';
                 UPDATE campaign_queue SET worker = md5('x')::uuid, leased_until = 'infinity'"
            ))
            .await;
    }

    async fn rows(&self, query: &str) -> Vec<Vec<String>> {
        let rows = self.fixture.client.query(query, &[]).await;
        let rows = rows.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        rows.iter()
            .map(|row| (0..row.len()).map(|at| row.get(at)).collect())
            .collect()
    }

    /// Compares every report of one zone and period with the rows.
    async fn check(&self, zone: &str, period: Period) {
        let account = self.fixture.account;
        let insights = PgInsights::new(self.fixture.tenants.clone());
        let zoned: Zone = zone.parse().unwrap();
        let window = Window::new(period, &zoned, BASE).unwrap();
        let dates = self.dates(zone, period).await;
        assert_eq!(window.dates, dates);
        let message_rows = self
            .rows(&format!(
                "SELECT status, (t.local)::date::text, extract(dow FROM t.local)::text, extract(hour FROM t.local)::text
                 FROM (SELECT status, created_at AT TIME ZONE '{zone}' AS local FROM messages WHERE account_id = '{account}'
                   UNION ALL SELECT status, created_at AT TIME ZONE '{zone}' FROM campaign_sends
                   WHERE account_id = '{account}') t"
            ))
            .await;
        let mut days: BTreeMap<Date, MessageCounts> =
            dates.iter().map(|&date| (date, MessageCounts::default())).collect();
        let mut heat: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for row in &message_rows {
            let (status, date) = (row[0].as_str(), parsed(&row[1]));
            let Some(day) = days.get_mut(&date) else { continue };
            match status {
                "sent" => day.sent += 1,
                "delivered" => day.delivered += 1,
                "read" => day.read += 1,
                "failed" => day.failed += 1,
                "received" => {
                    day.received += 1;
                    *heat
                        .entry((row[2].parse().unwrap(), row[3].parse().unwrap()))
                        .or_default() += 1;
                }
                _ => assert_eq!(status, "pending"),
            }
        }
        let expected: Vec<MessageCounts> = days.into_values().collect();
        assert_eq!(
            insights.messages(account, &window).await.unwrap(),
            expected,
            "{zone} {period}"
        );
        let expected: Vec<HeatCell> = heat
            .into_iter()
            .map(|((day, hour), count)| HeatCell { day, hour, count })
            .collect();
        let offset_intervals = zoned.offset_intervals(&window);
        assert_eq!(
            insights.heat_map(account, &offset_intervals).await.unwrap(),
            expected,
            "{zone} {period}"
        );
        self.check_campaigns(&insights, zone, &window).await;
    }

    async fn dates(&self, zone: &str, period: Period) -> Vec<Date> {
        let today = format!("SELECT ('{BASE}'::timestamptz AT TIME ZONE '{zone}')::date");
        let today = parsed(&self.fixture.text(&today).await.unwrap());
        (0..period.days())
            .rev()
            .map(|back| today - Duration::days(back))
            .collect()
    }

    async fn check_campaigns(&self, insights: &PgInsights, zone: &str, window: &Window) {
        let account = self.fixture.account;
        let (first, last) = (window.dates.first().unwrap(), window.dates.last().unwrap());
        let rows = self
            .rows(&format!(
                "SELECT c.id::text, c.total_recipients::text, t.name, s.status FROM campaigns c
                 JOIN message_templates t ON t.id = c.template_id
                 LEFT JOIN campaign_sends s ON s.campaign_id = c.id
                 WHERE c.account_id = '{account}' AND c.deleted_at IS NULL
                   AND (c.executed_at AT TIME ZONE '{zone}')::date BETWEEN '{first}' AND '{last}'
                 ORDER BY c.executed_at DESC, c.id DESC"
            ))
            .await;
        let mut expected: Vec<(String, i64, String, MessageCounts)> = Vec::new();
        for row in rows {
            if expected.last().is_none_or(|(id, ..)| *id != row[0]) {
                expected.push((
                    row[0].clone(),
                    row[1].parse().unwrap(),
                    row[2].clone(),
                    MessageCounts::default(),
                ));
            }
            let counts = &mut expected.last_mut().unwrap().3;
            match row[3].as_str() {
                "sent" => counts.sent += 1,
                "delivered" => counts.delivered += 1,
                "read" => counts.read += 1,
                "failed" => counts.failed += 1,
                _ => {}
            }
        }
        expected.truncate(3);
        let reported = insights.campaigns(account, window, 3).await.unwrap().into_iter();
        let reported: Vec<_> = reported
            .map(|campaign| {
                (
                    campaign.id.to_string(),
                    campaign.total_recipients,
                    campaign.template_name.unwrap(),
                    campaign.messages,
                )
            })
            .collect();
        assert_eq!(reported, expected);
    }

    async fn check_dashboard(&self) {
        let (fixture, account) = (self.fixture, self.fixture.account);
        let new_since = NewSince::at(BASE).unwrap();
        let reported = PgInsights::new(fixture.tenants.clone())
            .dashboard(account, &new_since)
            .await
            .unwrap();
        let contact_days = self
            .rows(&format!(
                "SELECT (created_at AT TIME ZONE 'UTC')::date::text FROM contacts
                 WHERE account_id = '{account}' AND deleted_at IS NULL"
            ))
            .await;
        let count_since = |day: Date| contact_days.iter().filter(|row| parsed(&row[0]) >= day).count();
        assert_eq!(
            [
                reported.contacts.total,
                reported.contacts.new_this_week,
                reported.contacts.new_this_month
            ],
            [Date::MIN, new_since.week, new_since.month].map(|day| i64::try_from(count_since(day)).unwrap())
        );
        for &status in ConversationStatus::ALL {
            let count = format!(
                "SELECT count(*) FROM conversations v JOIN contacts c ON c.id = v.contact_id
                 WHERE v.account_id = '{account}' AND c.deleted_at IS NULL AND v.status = '{status}'"
            );
            let stored: i64 = reported
                .conversations
                .iter()
                .filter(|(counted, _)| *counted == status)
                .map(|(_, n)| n)
                .sum();
            assert_eq!(stored, fixture.number(&count).await, "{status}");
        }
        let mut counts = MessageCounts::default();
        for (status, sum) in [
            ("sent", &mut counts.sent),
            ("delivered", &mut counts.delivered),
            ("read", &mut counts.read),
            ("failed", &mut counts.failed),
            ("received", &mut counts.received),
        ] {
            let count_rows = |table: &str| {
                format!("(SELECT count(*) FROM {table} WHERE account_id = '{account}' AND status = '{status}')")
            };
            *sum = fixture
                .number(&format!(
                    "SELECT {} + {}",
                    count_rows("messages"),
                    count_rows("campaign_sends")
                ))
                .await;
        }
        assert_eq!(reported.messages, counts);
        let live = format!("SELECT count(*) FROM campaigns WHERE account_id = '{account}' AND deleted_at IS NULL");
        assert_eq!(reported.campaigns.total, fixture.number(&live).await);
    }
}

fn parsed(date: &str) -> Date {
    let shape = time::macros::format_description!("[year]-[month]-[day]");
    Date::parse(date, &shape).unwrap()
}

/// Switches the fixture to a new account that has connected the number.
async fn connect(fixture: &mut DbFixture) -> ProfileId {
    fixture.account = fixture.another_account().await;
    let stored = profile(NUMBER);
    PgProfiles::new(fixture.tenants.clone())
        .insert(fixture.account, &stored, &[])
        .await
        .unwrap();
    stored.profile.id
}

#[test]
fn insights_equal_a_recount_after_any_history() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fixture = tokio::sync::Mutex::new(runtime.block_on(DbFixture::new()));
    let config = Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&prop::collection::vec(step(), 1..40), |steps| {
            runtime.block_on(async {
                let mut fixture = fixture.lock().await;
                let profile = connect(&mut fixture).await;
                let history = History {
                    fixture: &fixture,
                    profile,
                };
                for step in steps {
                    history.play(step).await;
                }
                for zone in ZONES {
                    for &period in Period::ALL {
                        history.check(zone, period).await;
                    }
                }
                history.check_dashboard().await;
                let rollups = PgRollups::new(fixture.owner.clone());
                assert_eq!(rollups.verify(fixture.account).await.unwrap(), []);
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn conversation_closed_while_contact_is_deleted_counts_once() {
    let mut fixture = DbFixture::new().await;
    let profile = connect(&mut fixture).await;
    for round in 0..8_u8 {
        let who = round % 6;
        let history = History {
            fixture: &fixture,
            profile,
        };
        history.play(Step::Inbound(who, 10)).await;
        let contact: ContactId = history.pick("contacts", "deleted_at IS NULL", 0).await.unwrap().into();
        let conversation: ConversationId = history
            .pick("conversations", &format!("contact_id = '{contact}'"), 0)
            .await
            .unwrap()
            .into();
        let (contacts, conversations) = (fixture.contacts(), history.conversations());
        let account = fixture.account;
        let close = async {
            conversations
                .set_status(account, conversation, ConversationStatus::Closed)
                .await
                .unwrap();
        };
        let remove = async {
            contacts.delete(account, contact, BASE).await.unwrap();
        };
        let begin_reply = async {
            conversations
                .begin_reply(account, &reply(conversation, 5, profile))
                .await
                .unwrap();
        };
        if round % 2 == 0 {
            tokio::join!(close, remove, begin_reply);
        } else {
            tokio::join!(remove, begin_reply, close);
        }
        history.check_dashboard().await;
    }
}

#[tokio::test]
async fn counters_verify_reports_and_rebuild_repairs_wrong_sums() {
    let mut fixture = DbFixture::new().await;
    let profile = connect(&mut fixture).await;
    let history = History {
        fixture: &fixture,
        profile,
    };
    for step in [
        Step::Inbound(1, 10),
        Step::Inbound(2, 3000),
        Step::Reply(0, 5),
        Step::Record(0, 0),
        Step::Import(vec![3, 4], 9),
    ] {
        history.play(step).await;
    }
    history
        .play(Step::Campaign(30, vec![Some(SendStatus::Read), None], false))
        .await;
    let account = fixture.account;
    let rollups = PgRollups::new(fixture.owner.clone());
    assert_eq!(rollups.verify(account).await.unwrap(), []);
    fixture
        .sql(&format!(
            "UPDATE message_rollups SET received = received + 1 WHERE account_id = '{account}' AND bucket_minutes = 15;
             DELETE FROM contact_counts WHERE account_id = '{account}';
             UPDATE conversation_counts SET conversations = 7 WHERE account_id = '{account}';
             UPDATE campaign_counter_slots SET read = 0, pending = pending + 1 WHERE account_id = '{account}';
             UPDATE message_usage_slots SET sent = sent + 5, reserved = 0 WHERE account_id = '{account}';
             INSERT INTO rfm_counts VALUES ('{account}', 'lost', 3)"
        ))
        .await;
    let mut named: Vec<&str> = rollups
        .verify(account)
        .await
        .unwrap()
        .iter()
        .map(|mismatch| mismatch.rollup)
        .collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(
        named,
        [
            "campaign_counters",
            "contact_counts",
            "conversation_counts",
            "message_rollups",
            "message_usage",
            "rfm_counts"
        ]
    );
    rollups.rebuild(account).await.unwrap();
    assert_eq!(rollups.verify(account).await.unwrap(), []);
    history.check_dashboard().await;
}

#[tokio::test]
async fn insights_exclude_other_accounts() {
    let mut fixture = DbFixture::new().await;
    let profile = connect(&mut fixture).await;
    History {
        fixture: &fixture,
        profile,
    }
    .play(Step::Inbound(1, 10))
    .await;
    let other = connect(&mut fixture).await;
    let history = History {
        fixture: &fixture,
        profile: other,
    };
    history.check("UTC", Period::Week).await;
    history.check_dashboard().await;
    let concurrent = join_all((0..6_u8).map(|who| history.play(Step::Inbound(who, 20)))).await;
    assert_eq!(concurrent.len(), 6);
    history.check("Asia/Kathmandu", Period::Week).await;
    history.check_dashboard().await;
}
