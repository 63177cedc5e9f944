//! Files on their way to the platform, and the platform's list, against the simulator with its faults.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::campaigns::SendOutcome;
use recado_domain::media::{MediaFile, MediaStore, MediaType};
use recado_domain::shared::GatewayError;
use recado_domain::templates::{HeaderSubmission, HeaderType, TemplateSubmission, TextParameter};
use recado_domain::whatsapp::{FileSource, OutboundCard, OutboundFile, OutboundTemplate, WhatsappGateway};
use recado_gateways::http::Http;
use recado_gateways::whatsapp::CloudApi;
use recado_simulators::whatsapp::{On, Whatsapp, WhatsappFault, WhatsappFaultKind};
use serde_json::json;

use crate::media::{Directory, content, in_directory, path, put};
use crate::whatsapp::{api, credentials, message, platform, submission};

const LENGTH: usize = 3_000_000;

async fn file(directory: &Directory) -> (MediaFile, Arc<dyn MediaStore>) {
    let (store, path) = (in_directory(directory), path(MediaType::Mp4));
    put(store.as_ref(), &path, &content(LENGTH)).await;
    (MediaFile::find(&store, path).await.unwrap().unwrap(), store)
}

fn gateway(platform: &Whatsapp) -> CloudApi {
    api(Some(&platform.base_url())).timeout(Duration::from_secs(2))
}

/// The bytes of every upload request, in order.
fn pieces(platform: &Whatsapp) -> Vec<u64> {
    let ledger = platform.ledger().into_iter();
    let sent = ledger.filter(|call| call.request.method == "POST" && call.request.path.contains("/upload:"));
    sent.map(|call| call.request.body["bytes"].as_u64().unwrap_or(0))
        .collect()
}

#[tokio::test]
async fn a_file_becomes_a_handle_and_the_handle_a_template() {
    let (platform, directory) = (platform(), Directory::new());
    let (file, _store) = file(&directory).await;
    let gateway = gateway(&platform);
    let handle = gateway.upload_header(&credentials("token"), &file).await.unwrap();
    assert!(handle.starts_with("4::"), "{handle}");
    assert_eq!(pieces(&platform), [3_000_000]);
    let opened = platform.ledger().remove(0).request;
    assert_eq!(opened.path, "/v25.0/102938/uploads");
    let query = |name: &str| {
        opened
            .query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(
        (query("file_length"), query("file_type")),
        (Some("3000000"), Some("video/mp4"))
    );
    let header = |handle: String| TemplateSubmission {
        header: Some(HeaderSubmission::File {
            format: HeaderType::Video,
            handle,
        }),
        ..submission()
    };
    let unknown = gateway
        .submit_template(&credentials("token"), &header("4::none".into()), None)
        .await;
    assert!(matches!(unknown, Err(GatewayError::Refused { .. })), "{unknown:?}");
    gateway
        .submit_template(&credentials("token"), &header(handle), None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_broken_upload_goes_on_where_it_stopped_once() {
    let directory = Directory::new();
    let (file, _store) = file(&directory).await;
    for (kind, sent) in [
        (
            WhatsappFaultKind::BreakAfter { bytes: 1_000_000 },
            vec![3_000_000, 2_000_000],
        ),
        (WhatsappFaultKind::BreakAfter { bytes: 0 }, vec![3_000_000, 3_000_000]),
        (WhatsappFaultKind::AcceptThenReset, vec![3_000_000, 0]),
        (WhatsappFaultKind::AcceptThenStatus500, vec![3_000_000, 0]),
        (WhatsappFaultKind::GarbageJson, vec![3_000_000, 0]),
    ] {
        let platform = platform();
        platform.script(vec![WhatsappFault::of(On::Upload, kind.clone())]);
        let handle = gateway(&platform).upload_header(&credentials("token"), &file).await;
        assert!(handle.is_ok(), "{kind:?}: {handle:?}");
        assert_eq!(pieces(&platform), sent, "{kind:?}");
    }
    let platform = platform();
    let twice =
        [1_000_000, 2_000_000].map(|bytes| WhatsappFault::of(On::Upload, WhatsappFaultKind::BreakAfter { bytes }));
    platform.script(twice.to_vec());
    let failed = gateway(&platform).upload_header(&credentials("token"), &file).await;
    assert!(matches!(failed, Err(GatewayError::Unavailable(_))), "{failed:?}");
    assert_eq!(pieces(&platform).len(), 2);
}

#[tokio::test]
async fn an_upload_that_is_refused_is_not_tried_again() {
    let (platform, directory) = (platform(), Directory::new());
    let (file, store) = file(&directory).await;
    let kind = WhatsappFaultKind::error(100, "no");
    platform.script(vec![WhatsappFault::of(On::Upload, kind)]);
    let refused = gateway(&platform).upload_header(&credentials("token"), &file).await;
    assert!(
        matches!(refused, Err(GatewayError::Refused { code: 100, .. })),
        "{refused:?}"
    );
    assert_eq!(pieces(&platform).len(), 1);
    let expired = gateway(&platform).upload_header(&credentials("expired"), &file).await;
    assert!(
        matches!(expired, Err(GatewayError::Refused { code: 190, .. })),
        "{expired:?}"
    );
    let nobody = CloudApi::new(Http::new().unwrap(), Some(&platform.base_url())).unwrap();
    let nobody = nobody.upload_header(&credentials("token"), &file).await;
    assert!(
        matches!(nobody, Err(GatewayError::NotConfigured("WHATSAPP_APP_ID"))),
        "{nobody:?}"
    );
    store.delete(&file.path).await.unwrap();
    let gone = gateway(&platform).upload_header(&credentials("token"), &file).await;
    assert!(matches!(gone, Err(GatewayError::Unavailable(_))), "{gone:?}");
}

/// A template of a film and two cards with pictures, and a message that fills them.
fn with_files(platform: &Whatsapp, source: &FileSource) -> OutboundTemplate {
    let card = json!({ "components": [{ "type": "HEADER", "format": "IMAGE" },
        { "type": "BODY", "text": "Por {{1}}." } ] });
    platform.add_template(
        &json!({ "name": "order_update", "language": "pt_BR", "category": "MARKETING",
        "components": [{ "type": "HEADER", "format": "VIDEO" }, { "type": "BODY", "text": "Oi" },
                       { "type": "CAROUSEL", "cards": [card, card] }] }),
    );
    let file = |kind| OutboundFile {
        kind,
        source: source.clone(),
    };
    let card = OutboundCard {
        file: file(HeaderType::Image),
        body: vec![TextParameter::numbered("R$ 10")],
        buttons: vec![],
    };
    OutboundTemplate {
        header_file: Some(file(HeaderType::Video)),
        body: vec![],
        buttons: vec![],
        cards: vec![card.clone(), card],
        ..message()
    }
}

#[tokio::test]
async fn a_message_names_a_file_that_the_number_was_given() {
    let (platform, directory) = (platform(), Directory::new());
    let (file, _store) = file(&directory).await;
    let gateway = gateway(&platform);
    let id = gateway.upload_file(&credentials("token"), &file).await.unwrap();
    let form = platform.ledger().remove(0).request;
    assert_eq!(form.path, "/v25.0/1065/media");
    assert!(
        form.body["bytes"].as_u64().is_some_and(|bytes| bytes > 3_000_000),
        "{}",
        form.body
    );
    let message = with_files(&platform, &FileSource::Id(id));
    let sent = gateway.send_template(&credentials("token"), &message).await;
    assert!(matches!(sent, SendOutcome::Accepted { .. }), "{sent:?}");
    let unknown = with_files(&platform, &FileSource::Id("7".into()));
    let failed = gateway.send_template(&credentials("token"), &unknown).await;
    assert!(
        matches!(failed, SendOutcome::Failed { code: 131_053, .. }),
        "{failed:?}"
    );
    let link = with_files(&platform, &FileSource::Link("https://l.example/a.mp4".into()));
    let sent = gateway.send_template(&credentials("token"), &link).await;
    assert!(matches!(sent, SendOutcome::Accepted { .. }), "{sent:?}");
}

#[tokio::test]
async fn a_file_that_does_not_arrive_is_told() {
    let directory = Directory::new();
    let (file, _store) = file(&directory).await;
    for kind in [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenStatus500,
    ] {
        let platform = platform();
        platform.script(vec![WhatsappFault::of(On::Media, kind.clone())]);
        let failed = gateway(&platform).upload_file(&credentials("token"), &file).await;
        let expected = matches!(
            failed,
            Err(GatewayError::Unavailable(_) | GatewayError::Refused { code: 131_000, .. })
        );
        assert!(expected, "{kind:?}: {failed:?}");
    }
}

#[tokio::test]
async fn every_page_of_the_list_is_reached() {
    let platform = platform();
    for number in 0..205 {
        platform.add_template(
            &json!({ "name": format!("t{number}"), "language": "pt_BR", "category": "UTILITY",
            "components": [{ "type": "BODY", "text": "Oi" }] }),
        );
    }
    let gateway = gateway(&platform);
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = gateway
            .list_templates(&credentials("token"), after.as_deref())
            .await
            .unwrap();
        names.extend(page.templates.into_iter().map(|template| template.name));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), pages), (205, 3));
}

#[tokio::test]
async fn a_list_that_does_not_come_is_told() {
    let platform = platform();
    platform.add_template(&json!({ "name": "t", "language": "pt_BR", "components": [] }));
    for kind in [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::Hang { ms: 60_000 },
    ] {
        platform.script(vec![WhatsappFault::of(On::List, kind.clone())]);
        let failed = gateway(&platform).list_templates(&credentials("token"), None).await;
        assert!(
            matches!(failed, Err(GatewayError::Unavailable(_))),
            "{kind:?}: {failed:?}"
        );
    }
    let unset = api(None).list_templates(&credentials("token"), None).await;
    assert!(matches!(unset, Err(GatewayError::NotConfigured(_))), "{unset:?}");
}
