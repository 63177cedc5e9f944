//! Recipients without a rate in the currency of a budget: they refuse a resume, a retry and a budget.

use recado_domain::campaigns::{
    Budget, Campaign, CampaignRefusal, CampaignStore as _, ClaimOutcome, QueuedRun, RetryOutcome, RunRetryStore as _,
    RunStartStore as _, RunStore as _, SendResult, SendStore as _,
};
use recado_domain::shared::SendId;

use crate::costs::{OLD_CARD, add_card, cost_of, differences, run_with_budget};
use crate::retries::retry_of;
use crate::support::{DbFixture, LEASE, id};

/// The markets without a rate of the remaining recipients.
async fn missing(fixture: &DbFixture, campaign: &Campaign, currency: &str) -> Vec<String> {
    let remaining = fixture.runs().remaining_costs(fixture.account, campaign.id).await;
    let budget = Budget {
        amount: 5.into(),
        currency: currency.into(),
    };
    match remaining.unwrap().unwrap().check(&budget) {
        Ok(()) => vec![],
        Err(CampaignRefusal::NoRate { markets }) => markets,
        Err(refusal) => panic!("{refusal}"),
    }
}

async fn claimed(fixture: &DbFixture, run: QueuedRun, worker: uuid::Uuid) -> Vec<SendId> {
    let claim = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap();
    let ClaimOutcome::Sends(claimed) = claim else { panic!() };
    claimed.iter().map(|send| send.id).collect()
}

/// Changes the contact of a send.
async fn change(fixture: &DbFixture, send: SendId, set: &str) {
    fixture
        .sql(&format!(
            "UPDATE contacts SET {set} WHERE id = (SELECT contact_id FROM campaign_sends WHERE id = '{send}')"
        ))
        .await;
}

#[tokio::test]
async fn remaining_recipients_are_those_that_a_run_still_writes_to() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "5").await;
    assert_eq!(missing(&fixture, &campaign, "USD").await, Vec::<String>::new());
    assert_eq!(missing(&fixture, &campaign, "EUR").await, ["BR"]);
    let ids = claimed(&fixture, run, worker).await;
    change(&fixture, ids[9], "phone = '+12125550100'").await;
    assert_eq!(missing(&fixture, &campaign, "USD").await, ["US"]);
    for left_out in ["opted_out_at = now()", "deleted_at = now()"] {
        change(&fixture, ids[9], left_out).await;
        assert_eq!(
            missing(&fixture, &campaign, "USD").await,
            Vec::<String>::new(),
            "{left_out}"
        );
        change(&fixture, ids[9], "opted_out_at = NULL, deleted_at = NULL").await;
    }
    // Messages that were started need no rate any more.
    fixture.start_sends(run, worker, &ids[..9]).await;
    assert_eq!(missing(&fixture, &campaign, "EUR").await, ["US"]);
    // A recipient batch has recipients without a send.
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{account}', '{contact}', 'x', '+33612345678');
             INSERT INTO campaign_recipient_batches (account_id, campaign_id, batch_no, contact_ids, created_at)
               VALUES ('{account}', '{campaign}', 1, '{{{contact}}}', now())",
            account = fixture.account,
            campaign = campaign.id,
            contact = id(),
        ))
        .await;
    assert_eq!(missing(&fixture, &campaign, "USD").await, ["FR", "US"]);
    // The category decides on the rate, also after WhatsApp changed it.
    fixture
        .sql("UPDATE message_templates SET category = 'AUTHENTICATION'")
        .await;
    change(&fixture, ids[9], "phone = '+5511977777777'").await;
    assert_eq!(missing(&fixture, &campaign, "USD").await, ["BR", "FR"]);
    let other = fixture.another_account().await;
    let of_other = fixture.runs().remaining_costs(other, campaign.id).await.unwrap();
    assert_eq!(of_other, None);
}

#[tokio::test]
async fn recipient_that_cannot_be_written_to_pauses_no_run() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "0.125").await;
    let ids = claimed(&fixture, run, worker).await;
    change(&fixture, ids[0], "phone = NULL").await;
    change(&fixture, ids[1], "phone = '+12125550100', opted_out_at = now()").await;
    let started = fixture.runs().record_and_start(run, worker, &[], &ids).await.unwrap();
    assert_eq!((started.sends.as_slice(), started.is_over_budget), (&ids[..4], true));
    let mut unreachable = started.unreachable.clone();
    unreachable.sort_unstable();
    assert_eq!(unreachable, ids[..2]);
    assert_eq!(cost_of(&fixture, &campaign).await, ("0".into(), "0.125".into()));
    // A recipient in a market without a rate pauses the run.
    let failed = |send: &SendId| {
        let message = "no".to_owned();
        (*send, SendResult::Failed { code: None, message })
    };
    let results: Vec<_> = ids[..4].iter().map(failed).collect();
    fixture.runs().record(run, &results).await.unwrap();
    change(&fixture, ids[4], "phone = '+12125550101'").await;
    let stopped = fixture
        .runs()
        .record_and_start(run, worker, &[], &ids[4..])
        .await
        .unwrap();
    assert_eq!((stopped.sends.len(), stopped.is_over_budget), (0, true));
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn retry_with_a_budget_needs_a_rate_for_every_market() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "5").await;
    let ids = claimed(&fixture, run, worker).await;
    fixture.start_sends(run, worker, &ids).await;
    let results: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(position, send)| {
            let result = match position < 2 {
                true => SendResult::Failed {
                    code: Some(131_026),
                    message: "no".into(),
                },
                false => SendResult::Sent {
                    message_id: Some(position.to_string()),
                    wa_id: None,
                },
            };
            (*send, result)
        })
        .collect();
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    // The failed send of the first batch is pending already when the rates are read, the others are in retry batches.
    change(&fixture, ids[1], "phone = '+12125550100'").await;
    let retry = retry_of(&fixture, &campaign).await;
    let refused = fixture.runs().retry(&retry).await.unwrap();
    let markets = vec!["US".to_owned()];
    assert_eq!(refused, RetryOutcome::Refused(CampaignRefusal::NoRate { markets }));
    let stored = fixture.campaigns().find(fixture.account, campaign.id).await.unwrap();
    assert_eq!(stored.unwrap().status.as_str(), "partial");
    change(&fixture, ids[1], "phone = '+5511977777777'").await;
    let started = fixture.runs().retry(&retry).await.unwrap();
    assert!(
        matches!(started, RetryOutcome::Started { recipients: 2, .. }),
        "{started:?}"
    );
}
