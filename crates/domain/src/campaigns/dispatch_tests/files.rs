//! Runs whose template has files: given to the platform before anybody is written to.

use serde_json::json;
use time::Duration;
use uuid::Uuid;

use super::stage::{Stage, accepted};
use super::{CampaignStatus, over, paused};
use crate::media::tests::ACCOUNT;
use crate::media::{MediaPath, MediaType};
use crate::templates::{ButtonKind, ButtonValue, HeaderType, TemplateType};
use crate::whatsapp::{FileSource, OutboundFile};

/// A stage whose template has a picture of ours as its header, and the picture's address.
fn pictured(contacts: usize) -> (Stage, String) {
    let path = MediaPath {
        account_id: ACCOUNT,
        id: Uuid::from_u128(5),
        kind: MediaType::Png,
    };
    let url = format!("https://media.example/{path}");
    let stage = Stage::new(contacts, |to, _| accepted(to));
    stage
        .shelf
        .files
        .lock()
        .unwrap()
        .insert(path.to_string(), b"png".to_vec());
    {
        let mut state = stage.runs.state();
        let template = &mut state.material.as_mut().unwrap().template;
        template.header_type = HeaderType::Image;
        template.header_media_url = Some(url.clone());
    }
    (stage, url)
}

fn file(id: &str) -> OutboundFile {
    OutboundFile {
        kind: HeaderType::Image,
        source: FileSource::Id(id.into()),
    }
}

#[tokio::test]
async fn a_file_is_given_once_for_all_messages() {
    let (stage, _) = pictured(12);
    assert_eq!(stage.carry_out().await, over(12, 12, CampaignStatus::Completed));
    assert_eq!(stage.platform.uploads.lock().unwrap().0, 1);
    let messages = stage.messages();
    assert!(
        messages
            .iter()
            .all(|message| message.header_file == Some(file("media-1")))
    );
}

#[tokio::test]
async fn a_platform_that_is_away_is_asked_three_times() {
    let (stage, _) = pictured(1);
    stage.platform.uploads.lock().unwrap().1 = 2;
    assert_eq!(stage.carry_out().await, over(1, 1, CampaignStatus::Completed));
    assert_eq!(stage.rests(), [1, 2]);
    let (stage, _) = pictured(1);
    stage.platform.uploads.lock().unwrap().1 = 3;
    assert_eq!(stage.carry_out().await, paused(1, 0));
    assert_eq!((stage.called().len(), stage.platform.uploads.lock().unwrap().0), (0, 3));
}

#[tokio::test]
async fn a_file_that_is_gone_pauses_the_run_and_says_so() {
    let (stage, _) = pictured(1);
    stage.shelf.files.lock().unwrap().clear();
    assert_eq!(stage.carry_out().await, paused(1, 0));
    let reason = stage.runs.state().campaign().pause_reason.clone();
    assert_eq!(reason.as_deref(), Some("the file of a header is not there any more"));
}

#[tokio::test]
async fn the_cards_of_a_carousel_are_filled() {
    let (stage, url) = pictured(1);
    let card = json!({ "components": [
        { "type": "HEADER", "format": "IMAGE", "example": { "header_handle": [url] } },
        { "type": "BODY", "text": "Por {{1}}.", "example": { "body_text": [["R$ 10"]] } },
        { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" },
            { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["a"] }] } ] });
    {
        let mut state = stage.runs.state();
        let template = &mut state.material.as_mut().unwrap().template;
        template.header_type = HeaderType::None;
        template.template_type = TemplateType::Carousel;
        template.carousel_cards = vec![card.clone(), card];
    }
    assert_eq!(stage.carry_out().await, over(1, 1, CampaignStatus::Completed));
    let message = stage.messages().remove(0);
    assert_eq!((message.header_file, message.cards.len()), (None, 2));
    let button = ButtonValue {
        index: 1,
        kind: ButtonKind::Url,
        value: "a".into(),
    };
    for card in message.cards {
        assert_eq!((card.file, card.body), (file("media-1"), vec!["R$ 10".to_owned()]));
        assert_eq!(card.buttons, std::slice::from_ref(&button));
    }
    assert_eq!(stage.platform.uploads.lock().unwrap().0, 1);
    assert_eq!(stage.delay, Duration::milliseconds(200));
}
