//! What is asked about some of an account's rows, by their keys or as a page, where the planner has not seen the account:
//! planned for its values, a statement expects one row of it, so that going through all of them looks cheaper than
//! looking each up by its key.

use std::time::{Duration, Instant};

use recado_domain::campaigns::{QueuedRun, RunStore, SendResult, SendStatus};
use recado_domain::contacts::{ContactDraft, ContactFilter, ContactQuery, ContactStore, ImportRow, Phone};
use recado_domain::conversations::{
    Arrival, ConversationQuery, ConversationStatus, ConversationStore, InboundMessage, InboundNews, InboxStore, Sender,
};
use recado_domain::ingestion::{CartDraft, CartStatus, EventDraft, IngestionStore, OrderDraft, OrderStatus, Who};
use recado_domain::notifications::{NotificationQuery, NotificationStore};
use recado_domain::segments::{MembersAdded, SegmentStore};
use recado_domain::shared::{AccountId, Amount, ContactId, Moment, SendId, SliceQuery};
use recado_domain::webhooks::{DeliveryQueue, FeedQuery, LogQuery, Settlement, Wanted, WebhookStore};
use recado_domain::whatsapp::{DeliveryStore, ProfileStore, STOPPED_MARKETING};
use recado_postgres::{
    PgConversations, PgDeliveryQueue, PgInbox, PgIngestion, PgNotifications, PgProfiles, PgSegments, PgWebhooks,
};
use uuid::Uuid;

use crate::contacts::{draft, upserted};
use crate::deliveries::news;
use crate::ingestion::{event, order};
use crate::support::{LEASE, NOW, World, id};
use crate::webhooks::made;
use crate::whatsapp::profile;

/// How many rows of each table the account has, and how many of them are asked about.
const ROWS: usize = 2000;
const PART: usize = 40;

const SLICE: SliceQuery = SliceQuery {
    cursor: None,
    limit: 40,
};

fn newest() -> SliceQuery<Moment> {
    SliceQuery {
        cursor: None,
        limit: SLICE.limit,
    }
}

/// Of this account there are so many rows of every table, but a few tags: their names are no keys, since no index may
/// tell a tenant of them (`lower` could).
fn rows_of(account: impl ToString, rows: usize) -> String {
    "INSERT INTO contacts (account_id, id, name, phone, wa_id)
       SELECT 'A', key('A', i), 'Ana', '+55119' || lpad(i::text, 8, '0'), '55119' || lpad(i::text, 8, '0') FROM i;
     INSERT INTO tags (account_id, id, name) SELECT 'A', key('A', i), 'tag ' || i FROM i WHERE i <= 10;
     INSERT INTO contact_tags (account_id, contact_id, tag_id) SELECT 'A', key('A', i), key('A', i % 10 + 1) FROM i;
     INSERT INTO segment_members (account_id, segment_id, contact_id) SELECT 'A', key('A', i / 1000), key('A', i) FROM i;
     INSERT INTO campaigns (account_id, id, name, status, quota_month)
       SELECT 'A', key('A', i), 'x', 'sending', '2026-03-01' FROM i;
     INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, wa_message_id, started_at)
       SELECT 'A', key('A', i), key('A', 1), key('A', i), 's' || i, now() FROM i;
     INSERT INTO sent_messages (account_id, wa_message_id, send_id) SELECT 'A', 's' || i, key('A', i) FROM i;
     INSERT INTO conversations (account_id, id, contact_id, last_message_at)
       SELECT 'A', key('A', i), key('A', i), now() FROM i;
     INSERT INTO messages (account_id, id, conversation_id, direction, type, status, wa_message_id, created_at)
       SELECT 'A', key('A', i), key('A', i), 'outbound', 'text', 'sent', 'm' || i, now() FROM i;
     INSERT INTO orders (account_id, id, platform, external_id, status, total, placed_at)
       SELECT 'A', key('A', i), 'loja', i::text, 'pending', 1, now() FROM i;
     INSERT INTO order_items (account_id, order_id, position, product_id, name, quantity, price)
       SELECT 'A', key('A', i), 0, 'p', 'Bolo', 1, 1 FROM i;
     INSERT INTO carts (account_id, id, platform, external_id, total, status, created_at)
       SELECT 'A', key('A', i), 'loja', i::text, 1, 'abandoned', now() FROM i;
     INSERT INTO metrics (account_id, metric_name) SELECT 'A', 'metric ' || i FROM i;
     INSERT INTO metric_contacts (account_id, metric_name, contact_id)
       SELECT 'A', 'metric ' || i, key('A', i) FROM i;
     INSERT INTO metric_events (account_id, id, metric_name, contact_id, source, occurred_at)
       SELECT 'A', key('A', i), 'metric ' || i, key('A', i), 'site', now() FROM i;
     INSERT INTO notifications (account_id, id, type, title, message, place)
       SELECT 'A', key('A', i), 'info', 'x', 'y', i FROM i;
     INSERT INTO webhook_events (account_id, id, type, payload, occurred_at, position)
       SELECT 'A', key('A', i), 'message.sent', '{}', now(), i FROM i;
     INSERT INTO webhook_endpoints (account_id, id, name, direction, url, events, secret, secret_hint)
       VALUES ('A', key('A', 1), 'x', 'outbound', 'https://e.example', '{*}', '', '');
     INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
       SELECT 'A', key('A', i), key('A', 1) FROM i;
     INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, event_id, created_at)
       SELECT 'A', key('A', i), key('A', 1), 'outbound', 'message.sent', i::text, key('A', i),
         now() - i % 1000 * interval '1 s' FROM i;"
        .replace("FROM i", &format!("FROM generate_series(1, {rows}) i"))
        .replace("'A'", &format!("'{}'", account.to_string()))
}

/// An account that the planner has not seen; another one has ten times its rows, which it has.
async fn unseen() -> World {
    let world = World::new().await;
    let other = world.another_account().await;
    let (seen, unseen) = (rows_of(other, 10 * ROWS), rows_of(world.account, ROWS));
    world
        .sql(&format!(
            "CREATE FUNCTION key(account text, i int) RETURNS uuid LANGUAGE sql IMMUTABLE
               AS 'SELECT md5(account || i)::uuid';
             SET session_replication_role = replica;
             INSERT INTO segments (account_id, id, name) VALUES ('{0}', key('{0}', 0), 'full'), ('{0}', key('{0}', 3), 'empty');
             INSERT INTO campaign_counter_slots (account_id, campaign_id, slot, total, pending)
               VALUES ('{0}', key('{0}', 1), 0, {ROWS}, {ROWS});
             {seen} ANALYZE; {unseen}
             SET session_replication_role = origin;",
            world.account
        ))
        .await;
    world
}

impl World {
    /// The account's row with this number, of whatever table.
    async fn key(&self, i: usize) -> Uuid {
        let key = self.text(&format!("key('{}', {i})", self.account)).await.unwrap();
        key.parse().unwrap()
    }

    async fn keys(&self) -> Vec<Uuid> {
        let mut keys = vec![];
        for i in 1..=PART {
            keys.push(self.key(i).await);
        }
        keys
    }

    /// From here on it is counted what connections read that are opened later.
    async fn count_reads(&mut self) {
        self.close().await;
        self.sql("SELECT pg_stat_force_next_flush()").await;
        self.sql("SELECT pg_stat_reset()").await;
    }

    /// A connection tells what it read when it ends.
    async fn close(&mut self) {
        (self.tenants, self.platform) = (self.db.tenant_pool(), self.db.platform_pool());
        let deadline = Instant::now() + Duration::from_secs(20);
        let open = "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND application_name LIKE 'recado %'";
        while self.number(open).await > 0 {
            assert!(Instant::now() < deadline, "connections stay open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.sql("SELECT pg_stat_clear_snapshot()").await;
    }

    /// Something was read, and of no table all rows of the account.
    async fn assert_looked_up(&mut self, what: &str) {
        self.assert_few_of(ROWS, what).await;
    }

    /// The same, of an account that has so many.
    async fn assert_few_of(&mut self, rows: usize, what: &str) {
        self.close().await;
        let read =
            "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS n, relname FROM pg_stat_user_tables";
        let some = self
            .number(&format!("SELECT count(*) FROM ({read}) r WHERE n >= {PART}"))
            .await;
        assert!(some > 0, "{what}: nothing was looked up");
        let many = format!("SELECT string_agg(relname || ' ' || n, ', ') FROM ({read}) r WHERE n >= {rows}");
        assert_eq!(
            self.text(&many).await,
            None,
            "{what}: all rows were read to find {PART}"
        );
    }
}

fn phone(i: usize) -> Phone {
    Phone::parse(&format!("+55119{i:08}")).unwrap()
}

#[tokio::test]
async fn statuses_of_messages() {
    let mut world = unseen().await;
    world.count_reads().await;
    let by_message: Vec<_> = (1..=PART)
        .map(|i| news(None, &format!("s{i}"), SendStatus::Read))
        .collect();
    let unknown = world.deliveries().apply(world.account, &by_message).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses by the message's id").await;
    let keys = world.keys().await;
    world.count_reads().await;
    let by_send: Vec<_> = keys
        .iter()
        .map(|&key| news(Some(SendId(key)), "x", SendStatus::Failed))
        .collect();
    let unknown = world.deliveries().apply(world.account, &by_send).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses by the send's id").await;
    world.count_reads().await;
    let of_replies: Vec<_> = (1..=PART)
        .map(|i| news(None, &format!("m{i}"), SendStatus::Read))
        .collect();
    let unknown = world.deliveries().apply(world.account, &of_replies).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses of replies").await;
}

#[tokio::test]
async fn results_of_a_run() {
    let mut world = unseen().await;
    let keys = world.keys().await;
    let run = QueuedRun {
        account_id: world.account,
        campaign_id: keys[0].into(),
    };
    let result = |(at, &key): (usize, &Uuid)| {
        let result = match at % 2 {
            0 => SendResult::Sent {
                message_id: Some(format!("n{at}")),
                wa_id: Some(format!("w{at}")),
            },
            _ => SendResult::Failed {
                code: Some(STOPPED_MARKETING),
                message: "no".into(),
            },
        };
        (SendId(key), result)
    };
    let results: Vec<_> = keys.iter().enumerate().map(result).collect();
    world.count_reads().await;
    world.runs().record(run, &results).await.unwrap();
    world.assert_looked_up("results of a run").await;
    assert_eq!(
        world
            .number("SELECT count(*) FROM campaign_sends WHERE status = 'sent'")
            .await,
        20
    );
}

#[tokio::test]
async fn sends_that_start() {
    let mut world = unseen().await;
    let worker = id();
    let run = QueuedRun {
        account_id: world.account,
        campaign_id: world.key(1).await.into(),
    };
    world
        .sql(&format!(
            "UPDATE campaign_sends SET started_at = NULL WHERE account_id = '{0}';
             INSERT INTO campaign_queue (account_id, campaign_id, trigger, worker, leased_until)
               VALUES ('{0}', '{1}', 'execute', '{worker}', now() + interval '1 minute')",
            run.account_id, run.campaign_id
        ))
        .await;
    let sends: Vec<SendId> = world.keys().await.into_iter().map(SendId).collect();
    world.count_reads().await;
    assert_eq!(world.start_sends(run, worker, &sends).await.len(), PART);
    world.assert_looked_up("sends that start").await;
}

#[tokio::test]
async fn contacts_of_an_import() {
    let mut world = unseen().await;
    let rows: Vec<_> = (1..=PART)
        .map(|i| ImportRow {
            contact: ContactDraft {
                phone: Some(phone(i)),
                ..draft("Bia", None)
            },
            tags: vec![format!("tag {}", i % 7)],
        })
        .collect();
    let ids: Vec<_> = rows.iter().map(|_| ContactId(id())).collect();
    world.count_reads().await;
    let upserted = upserted(world.contacts().upsert(world.account, &ids, &rows, NOW).await);
    assert_eq!(upserted.updated, 40);
    world.assert_looked_up("contacts of an import").await;
}

#[tokio::test]
async fn messages_that_arrive() {
    let mut world = unseen().await;
    PgProfiles::new(world.tenants.clone())
        .insert(world.account, &profile("111"))
        .await
        .unwrap();
    let arrival = |i: usize| Arrival {
        news: InboundNews::Message(InboundMessage {
            wa_message_id: format!("in{i}"),
            sender: Sender {
                wa_id: Some(format!("55119{i:08}")),
                user_id: None,
                name: Some("Ana".into()),
            },
            at: NOW,
            kind: "text".into(),
            text: Some("oi".into()),
            said: true,
            referral: None,
            payload: serde_json::json!({}),
        }),
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
    };
    let arrivals: Vec<_> = (1..=PART).map(arrival).collect();
    world.count_reads().await;
    PgInbox::new(world.tenants.clone())
        .receive(world.account, "111", &arrivals)
        .await
        .unwrap();
    world.assert_looked_up("messages that arrive").await;
    assert_eq!(
        world
            .number("SELECT count(*) FROM messages WHERE direction = 'inbound'")
            .await,
        40
    );
}

#[tokio::test]
async fn orders_carts_and_events() {
    let mut world = unseen().await;
    let keys = world.keys().await;
    let store = |world: &World| PgIngestion::new(world.tenants.clone());
    let orders: Vec<_> = (1..=PART)
        .map(|i| OrderDraft {
            phone: Some(phone(i)),
            ..order(&i.to_string(), OrderStatus::Paid, "2")
        })
        .collect();
    let ids: Vec<_> = orders.iter().map(|_| id().into()).collect();
    world.count_reads().await;
    store(&world).orders(world.account, &ids, &orders, NOW).await.unwrap();
    world.assert_looked_up("orders").await;
    let carts: Vec<_> = (1..=PART)
        .map(|i| CartDraft {
            platform: "loja".into(),
            external_id: i.to_string(),
            phone: Some(phone(i)),
            total: Amount::parse("2").unwrap(),
            status: CartStatus::Recovered,
            created_at: NOW,
        })
        .collect();
    let ids: Vec<_> = carts.iter().map(|_| id().into()).collect();
    world.count_reads().await;
    store(&world).carts(world.account, &ids, &carts, NOW).await.unwrap();
    world.assert_looked_up("carts").await;
    let told = |i: usize| EventDraft {
        who: match i % 2 {
            0 => Who::Phone(phone(i)),
            _ => Who::Contact(keys[i - 1].into()),
        },
        ..event(&format!("metric {i}"), Uuid::nil(), NOW)
    };
    let events: Vec<_> = (1..=PART).map(told).collect();
    world.count_reads().await;
    store(&world).events(world.account, &events, NOW).await.unwrap();
    world.assert_looked_up("events").await;
}

#[tokio::test]
async fn members_of_a_segment() {
    let mut world = unseen().await;
    let keys = world.keys().await;
    let (full, empty) = (world.key(0).await, world.key(3).await);
    let contacts: Vec<ContactId> = keys.iter().map(|&key| key.into()).collect();
    world.count_reads().await;
    let segments = PgSegments::new(world.tenants.clone());
    assert!(
        segments
            .remove_members(world.account, full.into(), &contacts)
            .await
            .unwrap()
    );
    drop(segments);
    world.assert_looked_up("members that leave").await;
    world.count_reads().await;
    let segments = PgSegments::new(world.tenants.clone());
    let added = segments.add_members(world.account, empty.into(), &contacts).await;
    assert!(matches!(added, Ok(MembersAdded::Done(_))), "{added:?}");
    drop(segments);
    world.assert_looked_up("members that come").await;
}

/// The account that the planner has not seen, and the one that has most of all rows; how many each has.
async fn both(world: &World) -> [(AccountId, usize); 2] {
    let most = "SELECT account_id FROM contacts GROUP BY 1 ORDER BY count(*) DESC LIMIT 1";
    let seen: Uuid = world.text(&format!("({most})")).await.unwrap().parse().unwrap();
    [(world.account, ROWS), (seen.into(), 10 * ROWS)]
}

#[tokio::test]
async fn pages_of_people() {
    let mut world = unseen().await;
    for (account, rows) in both(&world).await {
        let tag = world.text(&format!("key('{account}', 1)")).await.unwrap();
        for tag_id in [None, Some(tag.parse::<Uuid>().unwrap().into())] {
            let filter = ContactFilter {
                tag_id,
                ..ContactFilter::default()
            };
            world.count_reads().await;
            let query = ContactQuery { filter, slice: SLICE };
            let page = world.contacts().list(account, &query).await.unwrap();
            assert_eq!(page.data.len(), PART);
            world.assert_few_of(rows, "contacts").await;
        }
        world.count_reads().await;
        let conversations = PgConversations::new(world.tenants.clone(), world.platform.clone());
        let query = ConversationQuery {
            status: Some(ConversationStatus::Open),
            slice: newest(),
        };
        let page = conversations.list(account, &query).await.unwrap();
        assert_eq!(page.data.len(), PART);
        let of_one = conversations.messages(account, page.data[0].id, &newest()).await;
        assert_eq!(of_one.unwrap().unwrap().data.len(), 1);
        drop(conversations);
        world.assert_few_of(rows, "conversations, and messages of one").await;
    }
}

#[tokio::test]
async fn pages_of_what_happened() {
    let mut world = unseen().await;
    for (account, rows) in both(&world).await {
        world.count_reads().await;
        let notifications = PgNotifications::new(world.tenants.clone(), world.platform.clone());
        let query = NotificationQuery {
            unread: false,
            slice: SLICE,
        };
        assert_eq!(notifications.list(account, &query).await.unwrap().data.len(), PART);
        drop(notifications);
        world.assert_few_of(rows, "notifications").await;
        world.count_reads().await;
        let webhooks = PgWebhooks::new(world.tenants.clone());
        let limit = SLICE.limit;
        let query = FeedQuery {
            after: None,
            kind: None,
            limit,
        };
        assert_eq!(webhooks.feed(account, &query).await.unwrap().data.len(), PART);
        drop(webhooks);
        world.assert_few_of(rows, "events of webhooks").await;
        world.count_reads().await;
        let webhooks = PgWebhooks::new(world.tenants.clone());
        let query = LogQuery {
            limit,
            ..LogQuery::default()
        };
        assert_eq!(webhooks.logs(account, &query).await.unwrap().len(), PART);
        drop(webhooks);
        world.assert_few_of(rows, "deliveries of webhooks").await;
    }
}

/// Asked for all accounts at once, of each line as many as are wanted.
#[tokio::test]
async fn deliveries_of_webhooks() {
    let mut world = unseen().await;
    let queue = |world: &World| PgDeliveryQueue::new(world.platform.clone());
    for (account, rows) in both(&world).await {
        let line = world.text(&format!("key('{account}', 1)")).await.unwrap();
        let wanted = Wanted {
            lines: vec![(line.parse::<Uuid>().unwrap().into(), 2 * SLICE.limit)],
            others: 0,
            limit: 2 * SLICE.limit,
        };
        world.count_reads().await;
        let claimed = queue(&world).claim(&wanted, LEASE).await.unwrap();
        world.assert_few_of(rows, "deliveries that are claimed").await;
        assert_eq!(claimed.len(), 2 * PART);
        let (tried, left) = claimed.split_at(PART);
        let outcomes = [Settlement::Delivered, Settlement::Waiting(LEASE), Settlement::Failed];
        let attempts: Vec<_> = (tried.iter().zip(outcomes.into_iter().cycle()))
            .map(|(claimed, outcome)| made(claimed, Some(200), outcome))
            .collect();
        world.count_reads().await;
        queue(&world).finish(&attempts, &[]).await.unwrap();
        world.assert_few_of(rows, "deliveries that are over").await;
        let back: Vec<_> = left.iter().map(|claimed| (claimed.key, claimed.claim)).collect();
        world.count_reads().await;
        queue(&world).release(&back).await.unwrap();
        world.assert_few_of(rows, "deliveries that are given back").await;
        let standing = format!(
            "SELECT string_agg(state || ' ' || attempt || ' ' || n, ', ' ORDER BY state, attempt) FROM (
               SELECT state, attempt, count(*) AS n FROM webhook_deliveries WHERE account_id = '{account}' GROUP BY 1, 2) s"
        );
        let standing = world.text(&format!("({standing})")).await.unwrap();
        assert_eq!(
            standing,
            format!("failed 1 13, waiting 0 {}, waiting 1 13", rows - PART)
        );
    }
}
