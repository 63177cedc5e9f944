//! What is asked about some of an account's rows, by their keys or as a page, where the planner has not seen the account:
//! planned for its values, a statement expects one row of it, so that going through all of them looks cheaper than
//! looking each up by its key. Planned for all accounts, it expects what the average account has, which may be as few.
//! So each is asked under the statistics of one large account, and of many small ones.

mod world;

use recado_domain::campaigns::{QueuedRun, RunStore, SendResult, SendStatus};
use recado_domain::contacts::{
    BatchOutcome, ContactDraft, ContactFilter, ContactQuery, ContactStore, ImportRow, MAX_ATTRIBUTES, Phone,
};
use recado_domain::conversations::{
    ConversationQuery, ConversationStatus, ConversationStore, InboundEvent, InboundItem, InboundMessage, InboxStore,
    Sender,
};
use recado_domain::ingestion::{CartDraft, CartStatus, EventDraft, IngestionStore, OrderDraft, OrderStatus, Who};
use recado_domain::notifications::{NotificationQuery, NotificationStore};
use recado_domain::segments::{MembersAdded, SegmentStore};
use recado_domain::shared::{Amount, ContactId, SendId};
use recado_domain::webhooks::{ClaimRequest, DeliveryQueue, DeliveryState, FeedQuery, LogQuery, WebhookStore};
use recado_domain::whatsapp::{ProfileStore, STOPPED_MARKETING, StatusUpdateStore};
use recado_postgres::{
    PgConversations, PgDeliveryQueue, PgInbox, PgIngestion, PgNotifications, PgProfiles, PgSegments, PgWebhooks,
};
use serde_json::Map;
use uuid::Uuid;
use world::{FIRST_PAGE, Known, PART, newest, unseen};

use crate::contacts::{draft, upserted};
use crate::ingestion::{event, order};
use crate::status_updates::status_update;
use crate::support::{LEASE, NOW, World, id};
use crate::webhooks::made;
use crate::whatsapp::profile;

macro_rules! under_statistics {
    ($($known:ident as $name:ident: $($test:ident)+;)+) => {$(
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(super::unseen(super::Known::$known).await).await;
                }
            )+
        }
    )+};
}

under_statistics! {
    Large as of_a_large_account:
        statuses_of_messages results_of_a_run sends_that_start contacts_of_an_import messages_that_arrive orders_carts_and_events members_of_a_segment pages_of_people pages_of_what_happened deliveries_of_webhooks;
    Small as of_small_accounts:
        statuses_of_messages results_of_a_run sends_that_start contacts_of_an_import messages_that_arrive orders_carts_and_events members_of_a_segment pages_of_people pages_of_what_happened deliveries_of_webhooks;
}

fn phone(i: usize) -> Phone {
    Phone::parse(&format!("+55119{i:08}")).unwrap()
}

async fn statuses_of_messages(mut world: World) {
    world.count_reads().await;
    let by_message: Vec<_> = (1..=PART)
        .map(|i| status_update(None, &format!("s{i}"), SendStatus::Read))
        .collect();
    let unknown = world.status_updates().apply(world.account, &by_message).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses by the message's id").await;
    let keys = world.keys().await;
    world.count_reads().await;
    let by_send: Vec<_> = keys
        .iter()
        .map(|&key| status_update(Some(SendId(key)), "x", SendStatus::Failed))
        .collect();
    let unknown = world.status_updates().apply(world.account, &by_send).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses by the send's id").await;
    world.count_reads().await;
    let of_replies: Vec<_> = (1..=PART)
        .map(|i| status_update(None, &format!("m{i}"), SendStatus::Read))
        .collect();
    let unknown = world.status_updates().apply(world.account, &of_replies).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    world.assert_looked_up("statuses of replies").await;
}

async fn results_of_a_run(mut world: World) {
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

async fn sends_that_start(mut world: World) {
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

async fn contacts_of_an_import(mut world: World) {
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
    let too_wide = (0..=MAX_ATTRIBUTES)
        .map(|n| (format!("k{n}"), serde_json::Value::Null))
        .collect();
    let wide = |row: &ImportRow| {
        let mut row = row.clone();
        row.contact.attributes = Map::clone(&too_wide);
        row
    };
    let rows: Vec<_> = rows.iter().map(wide).collect();
    world.count_reads().await;
    let refused = world.contacts().upsert(world.account, &ids, &rows, NOW).await.unwrap();
    assert!(matches!(refused, BatchOutcome::Refused(rows) if rows.len() == PART));
    world.assert_looked_up("contacts that an import may not grow").await;
}

async fn messages_that_arrive(mut world: World) {
    PgProfiles::new(world.tenants.clone())
        .insert(world.account, &profile("111"))
        .await
        .unwrap();
    let item = |i: usize| InboundItem {
        event: InboundEvent::Message(InboundMessage {
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
            referral: Some(Box::default()),
            payload: serde_json::json!({}),
        }),
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
    };
    let inbound_items: Vec<_> = (1..=PART).map(item).collect();
    world.count_reads().await;
    PgInbox::new(world.tenants.clone())
        .receive(world.account, "111", &inbound_items)
        .await
        .unwrap();
    world.assert_looked_up("messages that arrive").await;
    let received = "SELECT count(*) FROM messages WHERE direction = 'inbound'";
    assert_eq!(world.number(received).await, 40);
    let referred = "SELECT count(*) FROM contacts WHERE first_referral IS NOT NULL";
    assert_eq!(world.number(referred).await, 40);
    // Each takes the number of the next one, so that every number changes hands.
    let sender = |i: usize| Sender {
        wa_id: Some(format!("55119{i:08}")),
        user_id: None,
        name: None,
    };
    let moves = (1..=PART).rev().map(|i| InboundItem {
        event: InboundEvent::NumberChanged {
            sender: sender(i),
            now: sender(i + 1),
        },
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
    });
    let moves: Vec<_> = moves.collect();
    world.count_reads().await;
    PgInbox::new(world.tenants.clone())
        .receive(world.account, "111", &moves)
        .await
        .unwrap();
    world.assert_looked_up("numbers that change hands").await;
}

async fn orders_carts_and_events(mut world: World) {
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

async fn members_of_a_segment(mut world: World) {
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

async fn pages_of_people(mut world: World) {
    for (account, rows) in world.both().await {
        let tag = world.text(&format!("key('{account}', 1)")).await.unwrap();
        for tag_id in [None, Some(tag.parse::<Uuid>().unwrap().into())] {
            let filter = ContactFilter {
                tag_id,
                ..ContactFilter::default()
            };
            world.count_reads().await;
            let query = ContactQuery {
                filter,
                page: FIRST_PAGE,
            };
            let page = world.contacts().list(account, &query).await.unwrap();
            assert_eq!(page.data.len(), PART);
            world.assert_few_of(rows, "contacts").await;
        }
        world.count_reads().await;
        let conversations = PgConversations::new(world.tenants.clone(), world.owner.clone());
        let query = ConversationQuery {
            status: Some(ConversationStatus::Open),
            page: newest(),
        };
        let page = conversations.list(account, &query).await.unwrap();
        assert_eq!(page.data.len(), PART);
        let of_one = conversations.messages(account, page.data[0].id, &newest()).await;
        assert_eq!(of_one.unwrap().unwrap().data.len(), 1);
        drop(conversations);
        world.assert_few_of(rows, "conversations, and messages of one").await;
    }
}

async fn pages_of_what_happened(mut world: World) {
    for (account, rows) in world.both().await {
        world.count_reads().await;
        let notifications = PgNotifications::new(world.tenants.clone(), world.owner.clone());
        let query = NotificationQuery {
            unread: false,
            page: FIRST_PAGE,
        };
        assert_eq!(notifications.list(account, &query).await.unwrap().data.len(), PART);
        drop(notifications);
        world.assert_few_of(rows, "notifications").await;
        world.count_reads().await;
        let webhooks = PgWebhooks::new(world.tenants.clone());
        let limit = FIRST_PAGE.limit;
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
async fn deliveries_of_webhooks(mut world: World) {
    let queue = |world: &World| PgDeliveryQueue::new(world.owner.clone());
    for (account, rows) in world.both().await {
        let endpoint = world.text(&format!("key('{account}', 1)")).await.unwrap();
        let request = ClaimRequest {
            endpoints: vec![(endpoint.parse::<Uuid>().unwrap().into(), 2 * FIRST_PAGE.limit)],
            others: 0,
            limit: 2 * FIRST_PAGE.limit,
        };
        world.count_reads().await;
        let claimed = queue(&world).claim(&request, LEASE).await.unwrap();
        world.assert_few_of(rows, "deliveries that are claimed").await;
        assert_eq!(claimed.len(), 2 * PART);
        let (tried, left) = claimed.split_at(PART);
        let outcomes = [
            DeliveryState::Delivered,
            DeliveryState::Waiting(LEASE),
            DeliveryState::Failed,
        ];
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
