//! Direct messages of an account that the planner's statistics do not contain.

use recado_domain::conversations::ConversationStore;
use recado_domain::direct_messages::{
    CancelOutcome, DirectMessageQuery, DirectMessageQueue, DirectMessageStore, DirectStatus, MessageInput,
    MessageRequest, NumberQueue, Phase, RecipientInput,
};
use recado_domain::messaging::{ContentInput, SendStatus};

use recado_postgres::{PgConversations, PgDirectMessageQueues, PgDirectMessages};

use super::fixture::{PART, newest};
use super::{StatusUpdateStore as _, phone};
use crate::error_codes::ERROR_CODES;
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

fn request(i: usize) -> MessageRequest {
    let input = MessageInput {
        to: Some(RecipientInput {
            phone: Some(phone(i).to_string()),
            ..RecipientInput::default()
        }),
        content: ContentInput::text("oi"),
        client_reference: Some(format!("r{i}")),
        ..MessageInput::default()
    };
    MessageRequest::parse(input).unwrap()
}

fn query() -> DirectMessageQuery {
    DirectMessageQuery {
        status: None,
        phase: None,
        contact_id: None,
        profile_id: None,
        template_id: None,
        client_reference: None,
        since: None,
        until: None,
        page: newest(),
    }
}

pub(super) async fn direct_messages_use_index_lookups(mut fixture: DbFixture) {
    read_facts(&mut fixture).await;
    fixture.assert_looked_up("contacts and references of requests").await;
    fixture.count_reads().await;
    let updates: Vec<_> = (1..=PART)
        .map(|i| status_update(None, &format!("d{}", 4 * i + 1), SendStatus::Read))
        .collect();
    let unknown = fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    assert_eq!(unknown, [0_usize; 0]);
    fixture.assert_looked_up("statuses of direct messages").await;
    work_on_queue(&mut fixture).await;
    fixture.assert_looked_up("starts of a queue").await;
    for (name, query) in [
        ("the first page", query()),
        (
            "failed messages",
            DirectMessageQuery {
                status: Some(DirectStatus::Failed),
                ..query()
            },
        ),
        (
            "waiting messages",
            DirectMessageQuery {
                phase: Some(Phase::Waiting),
                ..query()
            },
        ),
    ] {
        fixture.count_reads().await;
        let store = PgDirectMessages::new(fixture.tenants.clone(), ERROR_CODES);
        assert_eq!(store.list(fixture.account, &query).await.unwrap().data.len(), PART);
        drop(store);
        fixture.assert_looked_up(name).await;
    }
    find_and_cancel(&fixture).await;
    show_in_one_conversation(&mut fixture).await;
}

async fn read_facts(fixture: &mut DbFixture) {
    fixture.count_reads().await;
    let requests: Vec<_> = (1..=PART).map(request).collect();
    let store = PgDirectMessages::new(fixture.tenants.clone(), ERROR_CODES);
    let facts = store.facts(fixture.account, &requests).await.unwrap();
    assert_eq!((facts.contacts.len(), facts.references.len()), (PART, PART));
}

async fn work_on_queue(fixture: &mut DbFixture) {
    let queue = NumberQueue {
        account_id: fixture.account,
        profile_id: Some(fixture.key(0).await.into()),
    };
    let queues = PgDirectMessageQueues::new(fixture.tenants.clone(), fixture.owner.clone(), ERROR_CODES);
    let worker = id();
    // The queues of the other accounts have waited as long.
    let own = format!("account_id = '{}'", fixture.account);
    let waits = "UPDATE direct_message_queues SET waiting_since = now() - interval '1 day' WHERE";
    fixture.sql(&format!("{waits} {own}")).await;
    fixture.count_reads().await;
    assert_eq!(queues.take(worker, LEASE).await.unwrap(), Some(queue));
    let limit = u32::try_from(PART).unwrap();
    assert_eq!(queues.due(queue, limit).await.unwrap(), limit);
    // No contact has written, so all of them fail: that writes messages, statistics and events.
    let started = queues.start(queue, worker, limit, LEASE, false).await.unwrap();
    assert_eq!(started, Some(vec![]));
    queues.release(queue, worker).await.unwrap();
}

async fn find_and_cancel(fixture: &DbFixture) {
    let (account, store) = (
        fixture.account,
        PgDirectMessages::new(fixture.tenants.clone(), ERROR_CODES),
    );
    let last = fixture.key(3 * PART).await;
    assert!(store.find(account, last.into()).await.unwrap().is_some());
    let cancelled = store.cancel(account, last.into()).await.unwrap();
    assert!(matches!(cancelled, CancelOutcome::Cancelled(_)));
}

/// All of the account's messages are in one conversation.
async fn show_in_one_conversation(fixture: &mut DbFixture) {
    let (account, conversation) = (fixture.account, fixture.key(1).await);
    fixture
        .sql(&format!(
            "UPDATE direct_messages SET conversation_id = '{conversation}', sent_at = created_at
             WHERE account_id = '{account}'"
        ))
        .await;
    fixture.count_reads().await;
    let conversations = PgConversations::new(fixture.tenants.clone(), fixture.owner.clone());
    let page = conversations.messages(account, conversation.into(), &newest()).await;
    assert_eq!(page.unwrap().unwrap().data.len(), PART);
    drop(conversations);
    fixture.assert_looked_up("direct messages of a conversation").await;
}
