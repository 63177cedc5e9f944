//! Plan stability: queries for a batch of keys or a page MUST NOT read all rows of an account that is missing in the
//! planner's statistics.
//!
//! A custom plan expects one row of such an account, so a scan of all its rows looks cheaper than index look-ups by
//! key. A generic plan expects the rows of the average account, which may be as few. So each test runs with the
//! statistics of one large account and with those of many small accounts.

mod conditions;
mod costs;
mod direct_messages;
mod fixture;
mod imports;
mod narrow_sources;
mod queues;
mod reports;
mod runs;
mod statements;

use conditions::{
    audiences_by_tag_and_condition_read_few_rows, counts_by_condition_read_rows_once, pages_by_condition_read_few_rows,
};
use costs::{cost_reports_read_few_rows, costs_read_few_rows};
use direct_messages::direct_messages_use_index_lookups;
use fixture::{FIRST_PAGE, PART, PlannerStatistics, newest, unanalyzed_account};
use imports::contact_imports_use_index_lookups;
use narrow_sources::{
    audiences_of_few_contacts_read_few_rows, contacts_of_a_rare_source_read_few_rows,
    run_starts_of_few_contacts_read_few_rows, segment_pages_read_contacts_once_or_never,
};
use queues::{
    held_messages_are_found_by_those_that_are_held, idempotency_keys_use_index_lookups,
    queue_depths_read_waiting_rows_only, relayed_events_use_index_lookups,
};
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::campaigns::{QueuedRun, SendResult, SendStore as _};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore, Phone};
use recado_domain::conversations::{
    ConversationQuery, ConversationStatus, ConversationStore, InboundEvent, InboundItem, InboundMessage, InboxStore,
    Sender,
};
use recado_domain::ingestion::{CartDraft, CartStatus, EventDraft, IngestionStore, OrderDraft, OrderStatus, Who};
use recado_domain::messaging::SendStatus;
use recado_domain::notifications::{NotificationQuery, NotificationStore};
use recado_domain::segments::{MembersAdded, SegmentStore};
use recado_domain::shared::{Amount, ContactId, SendId};
use recado_domain::webhooks::{ClaimRequest, DeliveryQueue, DeliveryState, FeedQuery, LogQuery, WebhookLogStore};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::{
    PgConversations, PgDeliveryQueue, PgIngestion, PgNotifications, PgProfiles, PgSegments, PgWebhooks,
};
use reports::reports_of_a_month_read_few_rows;
use runs::{claims_and_ends_of_runs_read_few_rows, retries_and_pages_of_sends_read_few_rows};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error_codes::STOPPED_MARKETING;
use crate::ingestion::{event, order};
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, NOW, id};
use crate::webhooks::attempt;
use crate::whatsapp::profile;

macro_rules! under_statistics {
    ($($statistics:ident as $name:ident: $($test:ident)+;)+) => {$(
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(super::unanalyzed_account(super::PlannerStatistics::$statistics).await).await;
                }
            )+
        }
    )+};
}

under_statistics! {
    Large as large_account:
        status_updates_use_index_lookups
        run_results_use_index_lookups
        send_starts_use_index_lookups
        contact_imports_use_index_lookups
        inbound_messages_use_index_lookups
        ingestion_uses_index_lookups
        segment_members_use_index_lookups
        contact_and_conversation_pages_read_few_rows
        feed_and_log_pages_read_few_rows
        delivery_claims_read_few_rows
        contacts_of_a_rare_source_read_few_rows
        audiences_of_few_contacts_read_few_rows
        run_starts_of_few_contacts_read_few_rows
        segment_pages_read_contacts_once_or_never
        pages_by_condition_read_few_rows
        audiences_by_tag_and_condition_read_few_rows
        counts_by_condition_read_rows_once
        claims_and_ends_of_runs_read_few_rows
        retries_and_pages_of_sends_read_few_rows
        relayed_events_use_index_lookups
        idempotency_keys_use_index_lookups
        direct_messages_use_index_lookups
        queue_depths_read_waiting_rows_only
        held_messages_are_found_by_those_that_are_held
        reports_of_a_month_read_few_rows
        costs_read_few_rows
        cost_reports_read_few_rows;
    Small as small_accounts:
        status_updates_use_index_lookups
        run_results_use_index_lookups
        send_starts_use_index_lookups
        contact_imports_use_index_lookups
        inbound_messages_use_index_lookups
        ingestion_uses_index_lookups
        segment_members_use_index_lookups
        contact_and_conversation_pages_read_few_rows
        feed_and_log_pages_read_few_rows
        delivery_claims_read_few_rows
        contacts_of_a_rare_source_read_few_rows
        audiences_of_few_contacts_read_few_rows
        run_starts_of_few_contacts_read_few_rows
        segment_pages_read_contacts_once_or_never
        pages_by_condition_read_few_rows
        audiences_by_tag_and_condition_read_few_rows
        counts_by_condition_read_rows_once
        claims_and_ends_of_runs_read_few_rows
        retries_and_pages_of_sends_read_few_rows
        relayed_events_use_index_lookups
        idempotency_keys_use_index_lookups
        direct_messages_use_index_lookups
        queue_depths_read_waiting_rows_only
        held_messages_are_found_by_those_that_are_held
        reports_of_a_month_read_few_rows
        costs_read_few_rows
        cost_reports_read_few_rows;
}

fn phone(i: usize) -> Phone {
    Phone::parse(&format!("+55119{i:08}")).unwrap()
}

async fn status_updates_use_index_lookups(mut fixture: DbFixture) {
    fixture.count_reads().await;
    let by_message: Vec<_> = (1..=PART)
        .map(|i| status_update(None, &format!("s{i}"), SendStatus::Read))
        .collect();
    let unknown = fixture
        .status_updates()
        .apply(fixture.account, &by_message)
        .await
        .unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    fixture.assert_looked_up("statuses by the message's id").await;
    let keys = fixture.keys().await;
    fixture.count_reads().await;
    let by_send: Vec<_> = keys
        .iter()
        .map(|&key| status_update(Some(SendId(key)), "x", SendStatus::Failed))
        .collect();
    let unknown = fixture.status_updates().apply(fixture.account, &by_send).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    fixture.assert_looked_up("statuses by the send's id").await;
    fixture.count_reads().await;
    let by_reply: Vec<_> = (1..=PART)
        .map(|i| StatusUpdate {
            at: OffsetDateTime::now_utc(),
            ..status_update(None, &format!("m{i}"), SendStatus::Read)
        })
        .collect();
    let unknown = fixture
        .status_updates()
        .apply(fixture.account, &by_reply)
        .await
        .unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    fixture.assert_looked_up("statuses of replies").await;
}

async fn run_results_use_index_lookups(mut fixture: DbFixture) {
    let keys = fixture.keys().await;
    let run = QueuedRun {
        account_id: fixture.account,
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
    fixture.count_reads().await;
    fixture.runs().record(run, &results).await.unwrap();
    fixture.assert_looked_up("results of a run").await;
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM campaign_sends WHERE status = 'sent'")
            .await,
        20
    );
}

async fn send_starts_use_index_lookups(mut fixture: DbFixture) {
    let worker = id();
    let run = QueuedRun {
        account_id: fixture.account,
        campaign_id: fixture.key(1).await.into(),
    };
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET started_at = NULL WHERE account_id = '{0}';
             INSERT INTO campaign_queue (account_id, campaign_id, trigger, worker, leased_until)
               VALUES ('{0}', '{1}', 'execute', '{worker}', now() + interval '1 minute')",
            run.account_id, run.campaign_id
        ))
        .await;
    let sends: Vec<SendId> = fixture.keys().await.into_iter().map(SendId).collect();
    fixture.count_reads().await;
    assert_eq!(fixture.start_sends(run, worker, &sends).await.len(), PART);
    fixture.assert_looked_up("starts of sends").await;
    let template = fixture.stored_template().await;
    fixture
        .sql(&format!(
            "UPDATE campaigns SET template_id = '{template}' WHERE account_id = '{0}';
             UPDATE campaign_sends SET started_at = NULL WHERE account_id = '{0}';
             INSERT INTO account_settings (account_id, max_marketing_per_contact, updated_at)
               VALUES ('{0}', '{{ \"n\": 1, \"days\": 1 }}', now())",
            run.account_id
        ))
        .await;
    fixture.count_reads().await;
    assert_eq!(fixture.start_sends(run, worker, &sends).await.len(), PART);
    fixture.assert_looked_up("starts of sends with a limit").await;
}

async fn inbound_messages_use_index_lookups(mut fixture: DbFixture) {
    PgProfiles::new(fixture.tenants.clone())
        .insert(fixture.account, &profile("111"), &[])
        .await
        .unwrap();
    let item = |i: usize| InboundItem {
        event: InboundEvent::Message(InboundMessage {
            wa_message_id: format!("in{i}"),
            sender: Sender {
                wa_id: Some(format!("55119{i:08}")),
                user_id: None,
                name: Some("Ana".into()),
                ..Sender::default()
            },
            at: NOW,
            kind: "text".into(),
            text: Some("oi".into()),
            can_opt_out: true,
            answered_wa_id: (i == 1).then(|| "5511969999999".into()),
            referral: Some(Box::default()),
            payload: serde_json::json!({}),
            caption: None,
            interactive: None,
            quoted: None,
            file: None,
        }),
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
        media_id: id().into(),
    };
    let inbound_items: Vec<_> = (1..=PART).map(item).collect();
    fixture.count_reads().await;
    crate::conversations::inbox(&fixture)
        .receive(fixture.account, "111", &inbound_items)
        .await
        .unwrap();
    fixture.assert_looked_up("inbound messages").await;
    let received = "SELECT count(*) FROM messages WHERE direction = 'inbound'";
    assert_eq!(fixture.number(received).await, 40);
    let referred = "SELECT count(*) FROM contacts WHERE first_referral IS NOT NULL";
    assert_eq!(fixture.number(referred).await, 40);
    // Each sender changes to the number of the next sender, so that every number moves to another contact.
    let sender = |i: usize| Sender {
        wa_id: Some(format!("55119{i:08}")),
        user_id: None,
        name: None,
        ..Sender::default()
    };
    let moves = (1..=PART).rev().map(|i| InboundItem {
        event: InboundEvent::NumberChanged {
            sender: sender(i),
            now: sender(i + 1),
        },
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
        media_id: id().into(),
    });
    let moves: Vec<_> = moves.collect();
    fixture.count_reads().await;
    crate::conversations::inbox(&fixture)
        .receive(fixture.account, "111", &moves)
        .await
        .unwrap();
    fixture.assert_looked_up("number changes").await;
}

async fn ingestion_uses_index_lookups(mut fixture: DbFixture) {
    let keys = fixture.keys().await;
    let store = |fixture: &DbFixture| PgIngestion::new(fixture.tenants.clone());
    let orders: Vec<_> = (1..=PART)
        .map(|i| OrderDraft {
            phone: Some(phone(i)),
            ..order(&i.to_string(), OrderStatus::Paid, "2")
        })
        .collect();
    let ids: Vec<_> = orders.iter().map(|_| id().into()).collect();
    fixture.count_reads().await;
    store(&fixture)
        .orders(fixture.account, &ids, &orders, NOW)
        .await
        .unwrap();
    fixture.assert_looked_up("orders").await;
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
    fixture.count_reads().await;
    store(&fixture).carts(fixture.account, &ids, &carts, NOW).await.unwrap();
    fixture.assert_looked_up("carts").await;
    let event_draft = |i: usize| EventDraft {
        who: match i % 2 {
            0 => Who::Phone(phone(i)),
            _ => Who::Contact(keys[i - 1].into()),
        },
        ..event(&format!("metric {i}"), Uuid::nil(), NOW)
    };
    let events: Vec<_> = (1..=PART).map(event_draft).collect();
    fixture.count_reads().await;
    store(&fixture).events(fixture.account, &events, NOW).await.unwrap();
    fixture.assert_looked_up("events").await;
}

async fn segment_members_use_index_lookups(mut fixture: DbFixture) {
    let keys = fixture.keys().await;
    let (full, empty) = (fixture.key(0).await, fixture.key(3).await);
    let contacts: Vec<ContactId> = keys.iter().map(|&key| key.into()).collect();
    fixture.count_reads().await;
    let segments = PgSegments::new(fixture.tenants.clone());
    assert!(
        segments
            .remove_members(fixture.account, full.into(), &contacts)
            .await
            .unwrap()
            .is_done()
    );
    drop(segments);
    fixture.assert_looked_up("removed members").await;
    fixture.count_reads().await;
    let segments = PgSegments::new(fixture.tenants.clone());
    let added = segments.add_members(fixture.account, empty.into(), &contacts).await;
    assert!(matches!(added, Ok(MembersAdded::Done(_))), "{added:?}");
    drop(segments);
    fixture.assert_looked_up("added members").await;
}

async fn contact_and_conversation_pages_read_few_rows(mut fixture: DbFixture) {
    for (account, rows) in fixture.both().await {
        let tag = fixture.text(&format!("key('{account}', 1)")).await.unwrap();
        for tag_id in [None, Some(tag.parse::<Uuid>().unwrap().into())] {
            let filter = ContactFilter {
                tag_id,
                ..ContactFilter::default()
            };
            fixture.count_reads().await;
            let query = ContactQuery {
                filter,
                page: FIRST_PAGE,
            };
            let page = fixture.contacts().list(account, &query).await.unwrap();
            assert_eq!(page.data.len(), PART);
            fixture.assert_few_of(rows, "contacts").await;
        }
        let query = ContactQuery {
            filter: ContactFilter {
                search: Some("11 90000-0007".into()),
                ..ContactFilter::default()
            },
            page: FIRST_PAGE,
        };
        fixture.count_reads().await;
        let page = fixture.contacts().list(account, &query).await.unwrap();
        assert_eq!(page.data.len(), 1);
        let read = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables
          WHERE relname = 'contacts'";
        fixture.close().await;
        assert!(
            (1..10).contains(&fixture.number(read).await),
            "the contact with a number"
        );
        fixture.count_reads().await;
        let conversations = PgConversations::new(fixture.tenants.clone(), fixture.owner.clone());
        let query = ConversationQuery {
            status: Some(ConversationStatus::Open),
            page: newest(),
        };
        let page = conversations.list(account, &query).await.unwrap();
        assert_eq!(page.data.len(), PART);
        let messages = conversations.messages(account, page.data[0].id, &newest()).await;
        assert_eq!(messages.unwrap().unwrap().data.len(), 1);
        drop(conversations);
        fixture
            .assert_few_of(rows, "conversations and the messages of one")
            .await;
    }
}

async fn feed_and_log_pages_read_few_rows(mut fixture: DbFixture) {
    for (account, rows) in fixture.both().await {
        fixture.count_reads().await;
        let notifications = PgNotifications::new(fixture.tenants.clone(), fixture.owner.clone());
        let query = NotificationQuery {
            unread: false,
            page: FIRST_PAGE,
        };
        assert_eq!(notifications.list(account, &query).await.unwrap().data.len(), PART);
        drop(notifications);
        fixture.assert_few_of(rows, "notifications").await;
        fixture.count_reads().await;
        let webhooks = PgWebhooks::new(fixture.tenants.clone());
        let limit = FIRST_PAGE.limit;
        let query = FeedQuery {
            after: None,
            kind: None,
            limit,
        };
        assert_eq!(webhooks.feed(account, &query).await.unwrap().data.len(), PART);
        drop(webhooks);
        fixture.assert_few_of(rows, "webhook events").await;
        fixture.count_reads().await;
        let webhooks = PgWebhooks::new(fixture.tenants.clone());
        let query = LogQuery {
            limit,
            ..LogQuery::default()
        };
        assert_eq!(webhooks.logs(account, &query).await.unwrap().len(), PART);
        drop(webhooks);
        fixture.assert_few_of(rows, "webhook logs").await;
    }
}

/// A claim reads the deliveries of all accounts, with a limit per endpoint queue.
async fn delivery_claims_read_few_rows(mut fixture: DbFixture) {
    let queue = |fixture: &DbFixture| PgDeliveryQueue::new(fixture.owner.clone());
    for (account, rows) in fixture.both().await {
        let endpoint = fixture.text(&format!("key('{account}', 1)")).await.unwrap();
        let request = ClaimRequest {
            endpoints: vec![(endpoint.parse::<Uuid>().unwrap().into(), 2 * FIRST_PAGE.limit)],
            others: 0,
            limit: 2 * FIRST_PAGE.limit,
        };
        fixture.count_reads().await;
        let claimed = queue(&fixture).claim(&request, LEASE).await.unwrap();
        fixture.assert_few_of(rows, "claimed deliveries").await;
        assert_eq!(claimed.len(), 2 * PART);
        let (attempted, unattempted) = claimed.split_at(PART);
        let outcomes = [
            DeliveryState::Delivered,
            DeliveryState::Waiting(LEASE),
            DeliveryState::Failed,
        ];
        let attempts: Vec<_> = (attempted.iter().zip(outcomes.into_iter().cycle()))
            .map(|(claimed, outcome)| attempt(claimed, Some(200), outcome))
            .collect();
        fixture.count_reads().await;
        queue(&fixture).finish(&attempts, &[]).await.unwrap();
        fixture.assert_few_of(rows, "finished deliveries").await;
        let released: Vec<_> = unattempted.iter().map(|claimed| (claimed.key, claimed.claim)).collect();
        fixture.count_reads().await;
        queue(&fixture).release(&released).await.unwrap();
        fixture.assert_few_of(rows, "released deliveries").await;
        let states = format!(
            "SELECT string_agg(state || ' ' || attempt || ' ' || n, ', ' ORDER BY state, attempt) FROM (
               SELECT state, attempt, count(*) AS n FROM webhook_deliveries WHERE account_id = '{account}' GROUP BY 1, 2) s"
        );
        let states = fixture.text(&format!("({states})")).await.unwrap();
        assert_eq!(states, format!("failed 1 13, waiting 0 {}, waiting 1 13", rows - PART));
    }
}
