//! Runs whose template has files: the run uploads them before it sends the first message.

use serde_json::json;
use time::Duration;
use uuid::Uuid;

use super::fixture::{Fixture, RUN, SECOND, accepted};
use super::{CampaignStatus, RunEnd, over, paused};
use crate::media::tests::ACCOUNT;
use crate::media::{MediaPath, MediaType};
use crate::messaging::{ButtonKind, ButtonValue, FileSource, HeaderType, OutboundFile, TextParameter};
use crate::templates::TemplateType;

/// A fixture whose template has an uploaded image as its header, and the image's URL.
fn with_header_image(contacts: usize) -> (Fixture, String) {
    let path = MediaPath {
        account_id: ACCOUNT,
        id: Uuid::from_u128(5),
        kind: MediaType::Png,
    };
    let url = format!("https://media.example/{path}");
    let fixture = Fixture::new(contacts, |to, _| accepted(to));
    fixture
        .media_store
        .files
        .lock()
        .unwrap()
        .insert(path.to_string(), b"png".to_vec());
    {
        let mut state = fixture.runs.tables();
        let template = state.run_mut().template.as_mut().unwrap();
        template.header_type = HeaderType::Image;
        template.header_media_url = Some(url.clone());
    }
    (fixture, url)
}

fn file(id: &str) -> OutboundFile {
    OutboundFile {
        kind: HeaderType::Image,
        source: FileSource::Id(id.into()),
    }
}

#[tokio::test]
async fn run_uploads_a_file_once_for_all_messages() {
    let (fixture, _) = with_header_image(12);
    assert_eq!(fixture.run().await, over(12, 12, CampaignStatus::Completed));
    assert_eq!(fixture.whatsapp.uploads.lock().unwrap().0, 1);
    let messages = fixture.messages();
    assert!(
        messages
            .iter()
            .all(|message| message.header_file == Some(file("media-1")))
    );
}

/// Executes the run again after each postponement. Returns the delays and the final end.
async fn run_through_delays(fixture: &Fixture) -> (Vec<i64>, RunEnd) {
    let (mut delays, mut end) = (vec![], fixture.run().await);
    while let RunEnd::Postponed { delay, .. } = end {
        delays.push(delay.whole_seconds());
        assert_eq!(
            fixture.runs.tables().holder(RUN.campaign_id),
            None,
            "a postponed run has no lease"
        );
        fixture.runs.tables().now += delay - Duration::MILLISECOND;
        assert_eq!(
            fixture.take_over(SECOND).await,
            None,
            "the run was claimed before its delay"
        );
        fixture.runs.tables().now += Duration::MILLISECOND;
        end = fixture.take_over(SECOND).await.unwrap();
    }
    (delays, end)
}

#[tokio::test]
async fn run_is_postponed_while_uploads_or_the_store_fail() {
    let growing = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300];
    let (fixture, _) = with_header_image(1);
    fixture.whatsapp.uploads.lock().unwrap().1 = 11;
    let (delays, end) = run_through_delays(&fixture).await;
    assert_eq!(
        (&delays[..], end),
        (&growing[..], over(1, 1, CampaignStatus::Completed))
    );
    assert_eq!(
        (fixture.whatsapp.uploads.lock().unwrap().0, fixture.rests()),
        (12, vec![])
    );

    let (fixture, _) = with_header_image(1);
    *fixture.media_store.failures.lock().unwrap() = 3;
    let (delays, end) = run_through_delays(&fixture).await;
    assert_eq!(
        (&delays[..], end),
        (&growing[..3], over(1, 1, CampaignStatus::Completed))
    );
}

#[tokio::test]
async fn run_pauses_after_hours_without_its_files() {
    let (fixture, _) = with_header_image(1);
    fixture.whatsapp.uploads.lock().unwrap().1 = usize::MAX;
    let (delays, end) = run_through_delays(&fixture).await;
    assert_eq!(end, paused(1, 0));
    assert!(
        Duration::seconds(delays.iter().sum()) > Duration::hours(3),
        "{delays:?}"
    );
    fixture.whatsapp.uploads.lock().unwrap().1 = 0;
    fixture.runs.resume();
    let end = fixture.take_over(SECOND).await;
    assert_eq!(end, Some(over(1, 1, CampaignStatus::Completed)));
}

#[tokio::test]
async fn cancel_ends_a_postponed_run() {
    let (fixture, _) = with_header_image(1);
    fixture.whatsapp.uploads.lock().unwrap().1 = usize::MAX;
    assert!(matches!(fixture.run().await, RunEnd::Postponed { .. }));
    fixture.runs.cancel();
    fixture.runs.tables().now += Duration::HOUR;
    assert_eq!(
        (fixture.take_over(SECOND).await, fixture.called_phones().len()),
        (None, 0)
    );
}

#[tokio::test]
async fn run_pauses_with_a_reason_when_a_file_is_missing() {
    let (fixture, _) = with_header_image(1);
    fixture.media_store.files.lock().unwrap().clear();
    assert_eq!(fixture.run().await, paused(1, 0));
    let reason = fixture.runs.tables().campaign().pause_reason.clone();
    assert_eq!(
        reason.as_deref(),
        Some("the file of the template's header no longer exists")
    );
}

#[tokio::test]
async fn run_fills_the_cards_of_a_carousel() {
    let (fixture, url) = with_header_image(1);
    let card = json!({ "components": [
        { "type": "HEADER", "format": "IMAGE", "example": { "header_handle": [url] } },
        { "type": "BODY", "text": "Por {{1}}.", "example": { "body_text": [["R$ 10"]] } },
        { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" },
            { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["a"] }] } ] });
    {
        let mut state = fixture.runs.tables();
        let template = state.run_mut().template.as_mut().unwrap();
        template.header_type = HeaderType::None;
        template.template_type = TemplateType::Carousel;
        template.carousel_cards = vec![card.clone().into(), card.into()];
    }
    assert_eq!(fixture.run().await, over(1, 1, CampaignStatus::Completed));
    let message = fixture.messages().remove(0);
    assert_eq!((message.header_file, message.cards.len()), (None, 2));
    let button = ButtonValue {
        index: 1,
        kind: ButtonKind::Url,
        value: "a".into(),
    };
    for card in message.cards {
        assert_eq!(
            (card.file, card.body),
            (file("media-1"), vec![TextParameter::numbered("R$ 10")])
        );
        assert_eq!(card.buttons, std::slice::from_ref(&button));
    }
    assert_eq!(fixture.whatsapp.uploads.lock().unwrap().0, 1);
    assert_eq!(fixture.delay, Duration::milliseconds(200));
}
