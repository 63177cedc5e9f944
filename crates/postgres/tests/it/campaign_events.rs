//! Webhook events of campaigns and their messages: each is emitted once, in the transaction of its change.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, RunRetryStore as _, RunStartStore as _, RunStore as _, SendResult, SendStore as _,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;
use serde_json::{Value, json};

use crate::retries::retry_of;
use crate::status_updates::status_update;
use crate::support::{DbFixture, id};
use crate::webhook_events::endpoint;

/// Deletes and returns the webhook events in the outbox, as `type` and `items`.
pub(crate) async fn emitted_events(fixture: &DbFixture) -> Vec<(String, Value)> {
    let rows = fixture
        .client
        .query(
            "WITH gone AS (DELETE FROM outbox_events WHERE kind = 'webhook' RETURNING seq, payload)
             SELECT payload ->> 'type', (payload -> 'items')::text FROM gone ORDER BY seq",
            &[],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| (row.get(0), serde_json::from_str(row.get(1)).unwrap()))
        .collect()
}

fn failed() -> SendResult {
    SendResult::Failed {
        code: Some(131_026),
        message: "undeliverable".into(),
    }
}

/// The item of a message event, built from the send's row.
async fn item(fixture: &DbFixture, send: SendId, status: &str) -> Value {
    let query = format!(
        "SELECT json_build_object('id', id, 'campaign_id', campaign_id, 'conversation_id', null,
           'contact_id', contact_id, 'wa_message_id', wa_message_id, 'status', '{status}',
           'error_code', error_code, 'error_message', error_message, 'address', 'phone') FROM campaign_sends WHERE id = '{send}'"
    );
    serde_json::from_str(&fixture.text(&query).await.unwrap()).unwrap()
}

#[tokio::test]
async fn campaign_run_emits_start_message_and_finish_events() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let (runs, worker) = (fixture.runs(), id());
    let (campaign, run) = fixture.started(worker).await;
    let start = emitted_events(&fixture).await;
    assert_eq!(
        start,
        [(
            "campaign.started".to_owned(),
            json!([{ "id": campaign.id, "name": "Black Friday", "template_id": campaign.template_id,
                     "trigger": "execute", "simulated": false, "recipients": 3 }])
        )]
    );
    let sends = fixture.in_flight(run, worker, 3).await;
    assert_eq!(emitted_events(&fixture).await, []);
    // The statement itself writes the first result. The second has a `wa_id`, so the store records it separately.
    let accepted = |message: &str, wa_id: Option<&str>| SendResult::Sent {
        message_id: Some(message.into()),
        wa_id: wa_id.map(Into::into),
    };
    let results = [
        (sends[0], accepted("m0", None)),
        (sends[1], accepted("m1", Some("5511"))),
    ];
    runs.record_and_start(run, worker, &results, &[]).await.unwrap();
    runs.record_and_start(run, worker, &results, &[]).await.unwrap();
    runs.record(run, &[(sends[2], failed())]).await.unwrap();
    let mut expected = vec![];
    for (send, status) in sends.iter().zip(["sent", "sent", "failed"]) {
        expected.push((
            format!("message.{status}"),
            json!([item(&fixture, *send, status).await]),
        ));
    }
    let mut messages = emitted_events(&fixture).await;
    messages.sort_by_key(|(_, items)| expected.iter().position(|(_, expected_items)| expected_items == items));
    assert_eq!(messages, expected);
    let read: Vec<StatusUpdate> = [SendStatus::Read, SendStatus::Delivered, SendStatus::Read]
        .map(|status| status_update(None, "m0", status))
        .into();
    fixture.status_updates().apply(fixture.account, &read).await.unwrap();
    let expected = json!([item(&fixture, sends[0], "read").await]);
    assert_eq!(emitted_events(&fixture).await, [("message.read".to_owned(), expected)]);
    runs.finish(run).await.unwrap();
    runs.finish(run).await.unwrap();
    assert_eq!(
        emitted_events(&fixture).await,
        [(
            "campaign.finished".to_owned(),
            json!([{ "id": campaign.id, "name": "Black Friday", "status": "partial", "simulated": false, "total": 3,
                     "sent": 2, "failed": 1, "ended_early": null }])
        )]
    );
    runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap();
    let retried = emitted_events(&fixture).await;
    assert_eq!(retried.len(), 1);
    assert_eq!(
        (&retried[0].1[0]["trigger"], &retried[0].1[0]["recipients"]),
        (&json!("retry"), &json!(1))
    );
}

#[tokio::test]
async fn refused_start_emits_no_events() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let campaign: Campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    fixture.runs().start(&start, None, crate::support::LEASE).await.unwrap();
    assert_eq!(campaign.status, CampaignStatus::Draft);
    assert_eq!(emitted_events(&fixture).await, []);
}
