//! What webhook endpoints are told of campaigns and their messages, with the change and once.

use recado_domain::campaigns::{Campaign, CampaignStatus, RunStore, SendResult, SendStatus};
use recado_domain::shared::SendId;
use recado_domain::whatsapp::{StatusUpdate, StatusUpdateStore};
use serde_json::{Value, json};

use crate::retries::retry_of;
use crate::status_updates::status_update;
use crate::support::{DbFixture, id};
use crate::webhook_events::endpoint;

/// The webhook events so far, as `type` and `items`; forgets them.
pub(crate) async fn told(fixture: &DbFixture) -> Vec<(String, Value)> {
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

/// As an endpoint is told of a send.
async fn item(fixture: &DbFixture, send: SendId, status: &str) -> Value {
    let query = format!(
        "SELECT json_build_object('id', id, 'campaign_id', campaign_id, 'conversation_id', null,
           'contact_id', contact_id, 'wa_message_id', wa_message_id, 'status', '{status}',
           'error_code', error_code, 'error_message', error_message) FROM campaign_sends WHERE id = '{send}'"
    );
    serde_json::from_str(&fixture.text(&query).await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_run_tells_of_its_beginning_its_end_and_each_message() {
    let fixture = DbFixture::new().await;
    fixture.people(3).await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let (runs, worker) = (fixture.runs(), id());
    let (campaign, run) = fixture.started(worker).await;
    let start = told(&fixture).await;
    assert_eq!(
        start,
        [(
            "campaign.started".to_owned(),
            json!([{ "id": campaign.id, "name": "Black Friday", "template_id": campaign.template_id,
                     "trigger": "execute", "simulated": false, "recipients": 3 }])
        )]
    );
    let sends = fixture.in_flight(run, worker, 3).await;
    assert_eq!(told(&fixture).await, []);
    // The short way and the long one.
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
    let mut wanted = vec![];
    for (send, status) in sends.iter().zip(["sent", "sent", "failed"]) {
        wanted.push((
            format!("message.{status}"),
            json!([item(&fixture, *send, status).await]),
        ));
    }
    let mut messages = told(&fixture).await;
    messages.sort_by_key(|(_, items)| wanted.iter().position(|(_, known)| known == items));
    assert_eq!(messages, wanted);
    let read: Vec<StatusUpdate> = [SendStatus::Read, SendStatus::Delivered, SendStatus::Read]
        .map(|status| status_update(None, "m0", status))
        .into();
    fixture.status_updates().apply(fixture.account, &read).await.unwrap();
    let wanted = json!([item(&fixture, sends[0], "read").await]);
    assert_eq!(told(&fixture).await, [("message.read".to_owned(), wanted)]);
    runs.finish(run).await.unwrap();
    runs.finish(run).await.unwrap();
    assert_eq!(
        told(&fixture).await,
        [(
            "campaign.finished".to_owned(),
            json!([{ "id": campaign.id, "name": "Black Friday", "status": "partial", "simulated": false, "total": 3,
                     "sent": 2, "failed": 1, "ended_early": null }])
        )]
    );
    runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap();
    let again = told(&fixture).await;
    assert_eq!(again.len(), 1);
    assert_eq!(
        (&again[0].1[0]["trigger"], &again[0].1[0]["recipients"]),
        (&json!("retry"), &json!(1))
    );
}

#[tokio::test]
async fn nothing_is_told_of_a_start_that_is_refused() {
    let fixture = DbFixture::new().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    let campaign: Campaign = fixture.stored_draft().await;
    let start = fixture.start_of(&campaign);
    fixture.runs().start(&start, None, crate::support::LEASE).await.unwrap();
    assert_eq!(campaign.status, CampaignStatus::Draft);
    assert_eq!(told(&fixture).await, []);
}
