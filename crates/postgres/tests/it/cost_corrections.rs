//! Corrections of prices: late status updates, new cards, and what a budget has reserved.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::{ClaimOutcome, SendStore as _};
use recado_domain::conversations::ConversationStore as _;
use recado_domain::conversations::ReplyDraft;
use recado_domain::messaging::{Pricing, SendStatus};
use recado_domain::shared::{SendId, TemplateId};
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::PgProfiles;
use time::Duration;

use crate::conversations::{connected, conversations, message, only_conversation, receive, reply_draft, sender};
use crate::costs::{MIDNIGHT, OLD_CARD, add_card, cost_of, differences, free, pricing, run_with_budget};
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, NOW, id, id_at};

async fn apply(fixture: &DbFixture, send: SendId, status: SendStatus, price: Pricing) {
    let update = StatusUpdate {
        at: price.priced_at,
        pricing: Some(price),
        ..status_update(Some(send), &send.to_string(), status)
    };
    for _ in 0..2 {
        let updates = [update.clone()];
        fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    }
}

/// The amounts of the sums of costs that are not zero, with their bucket and category.
async fn sums(fixture: &DbFixture) -> String {
    let sums = "SELECT string_agg(concat_ws(' ', to_char(bucket_start AT TIME ZONE 'UTC', 'DD HH24:MI'), category,
        trim_scale(amount), unpriced), ', ' ORDER BY bucket_start) FROM cost_rollups WHERE messages > 0";
    fixture.text(sums).await.unwrap_or_default()
}

const SECOND_CARD: &str = "market,currency,category,rate,effective_from\nBR,USD,marketing,0.09,2026-01-01\n";

#[tokio::test]
async fn late_earlier_status_takes_no_rate_of_a_new_card() {
    use SendStatus::{Delivered, Read, Sent};
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    let at = |hours: i64| MIDNIGHT + Duration::hours(hours);
    apply(&fixture, send, Delivered, pricing("marketing", at(1))).await;
    assert_eq!(sums(&fixture).await, "01 04:00 marketing 0.0625 0");
    add_card(&fixture, 2, SECOND_CARD).await;
    apply(&fixture, send, Sent, pricing("marketing", at(0))).await;
    assert_eq!(sums(&fixture).await, "01 03:00 marketing 0.0625 0");
    // A correction is a new amount, by the newest card with the category.
    apply(&fixture, send, Read, pricing("utility", at(2))).await;
    assert_eq!(sums(&fixture).await, "01 03:00 utility 0.008 0");
    apply(&fixture, send, Read, pricing("marketing", at(3))).await;
    assert_eq!(sums(&fixture).await, "01 03:00 marketing 0.09 0");
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn late_earlier_status_prices_no_unpriced_message() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    let before = MIDNIGHT - Duration::HOUR;
    apply(&fixture, send, SendStatus::Delivered, pricing("marketing", MIDNIGHT)).await;
    add_card(&fixture, 1, OLD_CARD).await;
    apply(&fixture, send, SendStatus::Sent, pricing("marketing", before)).await;
    assert_eq!(sums(&fixture).await, "01 02:00 marketing 0 1");
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

/// The rates of a card change at midnight. A late status update of before is priced by that card's earlier rate.
#[tokio::test]
async fn late_earlier_status_takes_the_earlier_rate_of_its_card() {
    let fixture = DbFixture::new().await;
    let card = "market,currency,category,rate,effective_from,zone\n\
        BR,USD,marketing,0.05,2026-01-01,America/Sao_Paulo\nBR,USD,marketing,0.07,2026-03-01,America/Sao_Paulo\n";
    add_card(&fixture, 1, card).await;
    fixture.add_contacts(1).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    apply(&fixture, send, SendStatus::Delivered, pricing("marketing", MIDNIGHT)).await;
    assert_eq!(sums(&fixture).await, "01 03:00 marketing 0.07 0");
    add_card(&fixture, 2, SECOND_CARD).await;
    let before = MIDNIGHT - Duration::SECOND;
    apply(&fixture, send, SendStatus::Sent, pricing("marketing", before)).await;
    assert_eq!(sums(&fixture).await, "01 02:45 marketing 0.05 0");
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn reservation_follows_the_corrections_of_a_price() {
    use SendStatus::{Delivered, Read, Sent};
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "0.25").await;
    let claim = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap();
    let ClaimOutcome::Sends(claimed) = claim else { panic!() };
    let ids: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
    let started = fixture.runs().record_and_start(run, worker, &[], &ids).await.unwrap();
    assert_eq!(started.sends.len(), 4);
    let at = |minutes: i64| MIDNIGHT + Duration::minutes(minutes);
    for (status, price, spent, reserved) in [
        (Sent, free("marketing", at(-2)), "0", "0.1875"),
        (Sent, pricing("marketing", at(-1)), "0", "0.25"),
        (Delivered, free("marketing", at(1)), "0", "0.1875"),
        (Read, pricing("service", at(2)), "0", "0.25"),
        (Read, free("service", at(3)), "0", "0.1875"),
        (Read, pricing("marketing", at(4)), "0.0625", "0.1875"),
        (Read, pricing("service", at(5)), "0", "0.25"),
        (Read, pricing("utility", at(6)), "0.008", "0.1875"),
    ] {
        apply(&fixture, ids[0], status, price.clone()).await;
        let cost = cost_of(&fixture, &campaign).await;
        assert_eq!(cost, (spent.into(), reserved.into()), "{price:?}");
        assert_eq!(differences(&fixture).await, Vec::<String>::new(), "{price:?}");
    }
    // A message that was corrected before its delivery has its price within the budget.
    apply(&fixture, ids[1], Sent, free("marketing", at(0))).await;
    apply(&fixture, ids[1], Delivered, pricing("marketing", at(1))).await;
    assert_eq!(cost_of(&fixture, &campaign).await, ("0.0705".into(), "0.125".into()));
}

/// A returned reservation is in the currency that the budget had then.
#[tokio::test]
async fn correction_takes_no_reservation_in_another_currency() {
    let fixture = DbFixture::new().await;
    add_card(&fixture, 1, OLD_CARD).await;
    let (campaign, run, worker) = run_with_budget(&fixture, "0.0625").await;
    let send = fixture.in_flight(run, worker, 1).await[0];
    apply(&fixture, send, SendStatus::Delivered, free("marketing", MIDNIGHT)).await;
    assert_eq!(cost_of(&fixture, &campaign).await, ("0".into(), "0".into()));
    fixture
        .sql("UPDATE campaigns SET budget = '{\"amount\": 5, \"currency\": \"EUR\"}'")
        .await;
    let later = MIDNIGHT + Duration::MINUTE;
    apply(&fixture, send, SendStatus::Read, pricing("service", later)).await;
    assert_eq!(cost_of(&fixture, &campaign).await, ("0".into(), "0".into()));
    assert_eq!(differences(&fixture).await, Vec::<String>::new());
}

#[tokio::test]
async fn reply_costs_by_the_number_and_template_that_it_was_sent_with() {
    let (fixture, profile) = connected().await;
    let account = fixture.account;
    receive(&fixture, account, vec![message("a", sender("5511961234567"), "oi", 0)]).await;
    let conversation = only_conversation(&fixture, account).await.id;
    let template = TemplateId(id());
    let store = conversations(&fixture);
    let draft = ReplyDraft {
        template_id: Some(template),
        ..reply_draft(conversation, id_at(NOW), NOW, profile)
    };
    store.begin_reply(account, &draft).await.unwrap();
    // The contact writes to another number before WhatsApp reports the price.
    let second = crate::whatsapp::profile("222");
    let second_id = second.profile.id;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    profiles.insert(account, &second, &[]).await.unwrap();
    fixture
        .sql(&format!("UPDATE conversations SET profile_id = '{second_id}'"))
        .await;
    let update = StatusUpdate {
        pricing: Some(pricing("service", NOW)),
        at: NOW,
        ..status_update(Some(SendId(draft.id.0)), "m", SendStatus::Delivered)
    };
    let unmatched = fixture.status_updates().apply(account, &[update]).await.unwrap();
    assert_eq!(unmatched, Vec::<usize>::new());
    let counted = "SELECT profile_id || ' ' || template_id FROM cost_rollups";
    let expected = format!("{profile} {template}");
    assert_eq!(fixture.text(counted).await, Some(expected));
}
