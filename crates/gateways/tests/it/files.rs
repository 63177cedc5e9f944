//! Tests of file uploads to WhatsApp and of its list of templates, against the simulator with injected faults.

use std::sync::Arc;
use std::time::Duration;

use recado_domain::media::{MediaFile, MediaStore, MediaType};
use recado_domain::messaging::{
    FileSource, HeaderSubmission, HeaderType, OutboundCard, OutboundFile, OutboundTemplate, SendOutcome,
    TemplateSubmission, TextParameter, WhatsappGateway,
};
use recado_domain::shared::GatewayError;
use recado_gateways::http::Http;
use recado_gateways::whatsapp::CloudApi;
use recado_simulators::whatsapp::{On, Whatsapp, WhatsappFault, WhatsappFaultKind};
use serde_json::json;

use crate::media::{Directory, content, directory_store, path, put};
use crate::whatsapp::{api, credentials, message, start_simulator, submission};

const LENGTH: usize = 3_000_000;

async fn file(directory: &Directory) -> (MediaFile, Arc<dyn MediaStore>) {
    let (store, path) = (directory_store(directory), path(MediaType::Mp4));
    put(store.as_ref(), &path, &content(LENGTH)).await;
    (MediaFile::find(&store, path).await.unwrap().unwrap(), store)
}

fn gateway(simulator: &Whatsapp) -> CloudApi {
    api(Some(&simulator.base_url())).timeout(Duration::from_secs(2))
}

/// The number of bytes of every upload request, in order.
fn upload_sizes(simulator: &Whatsapp) -> Vec<u64> {
    let ledger = simulator.ledger().into_iter();
    let uploads = ledger.filter(|call| call.request.method == "POST" && call.request.path.contains("/upload:"));
    uploads
        .map(|call| call.request.body["bytes"].as_u64().unwrap_or(0))
        .collect()
}

#[tokio::test]
async fn uploaded_file_gives_a_handle_for_a_template() {
    let (simulator, directory) = (start_simulator(), Directory::new());
    let (file, _store) = file(&directory).await;
    let gateway = gateway(&simulator);
    let handle = gateway.upload_header(&credentials("token"), &file).await.unwrap();
    assert!(handle.starts_with("4::"), "{handle}");
    assert_eq!(upload_sizes(&simulator), [3_000_000]);
    let session_request = simulator.ledger().remove(0).request;
    assert_eq!(session_request.path, "/v25.0/102938/uploads");
    let query = |name: &str| {
        session_request
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
    let unknown_handle = gateway
        .submit_template(&credentials("token"), &header("4::none".into()), None)
        .await;
    assert!(
        matches!(unknown_handle, Err(GatewayError::Refused { .. })),
        "{unknown_handle:?}"
    );
    gateway
        .submit_template(&credentials("token"), &header(handle), None)
        .await
        .unwrap();
}

#[tokio::test]
async fn broken_upload_is_resumed_once_at_its_offset() {
    let directory = Directory::new();
    let (file, _store) = file(&directory).await;
    for (kind, sizes) in [
        (
            WhatsappFaultKind::BreakAfter { bytes: 1_000_000 },
            vec![3_000_000, 2_000_000],
        ),
        (WhatsappFaultKind::BreakAfter { bytes: 0 }, vec![3_000_000, 3_000_000]),
        (WhatsappFaultKind::AcceptThenReset, vec![3_000_000, 0]),
        (WhatsappFaultKind::AcceptThenStatus500, vec![3_000_000, 0]),
        (WhatsappFaultKind::GarbageJson, vec![3_000_000, 0]),
    ] {
        let simulator = start_simulator();
        simulator.script(vec![WhatsappFault::of(On::Upload, kind.clone())]);
        let handle = gateway(&simulator).upload_header(&credentials("token"), &file).await;
        assert!(handle.is_ok(), "{kind:?}: {handle:?}");
        assert_eq!(upload_sizes(&simulator), sizes, "{kind:?}");
    }
    let simulator = start_simulator();
    let faults =
        [1_000_000, 2_000_000].map(|bytes| WhatsappFault::of(On::Upload, WhatsappFaultKind::BreakAfter { bytes }));
    simulator.script(faults.to_vec());
    let failed = gateway(&simulator).upload_header(&credentials("token"), &file).await;
    assert!(matches!(failed, Err(GatewayError::Unavailable(_))), "{failed:?}");
    assert_eq!(upload_sizes(&simulator).len(), 2);
}

#[tokio::test]
async fn refused_upload_is_not_retried() {
    let (simulator, directory) = (start_simulator(), Directory::new());
    let (file, store) = file(&directory).await;
    let kind = WhatsappFaultKind::error(100, "no");
    simulator.script(vec![WhatsappFault::of(On::Upload, kind)]);
    let refused = gateway(&simulator).upload_header(&credentials("token"), &file).await;
    assert!(
        matches!(refused, Err(GatewayError::Refused { code: 100, .. })),
        "{refused:?}"
    );
    assert_eq!(upload_sizes(&simulator).len(), 1);
    let expired = gateway(&simulator).upload_header(&credentials("expired"), &file).await;
    assert!(
        matches!(expired, Err(GatewayError::Refused { code: 190, .. })),
        "{expired:?}"
    );
    let without_app = CloudApi::new(Http::new().unwrap(), Some(&simulator.base_url())).unwrap();
    let unconfigured = without_app.upload_header(&credentials("token"), &file).await;
    assert!(
        matches!(unconfigured, Err(GatewayError::NotConfigured("WHATSAPP_APP_ID"))),
        "{unconfigured:?}"
    );
    store.delete(&file.path).await.unwrap();
    let missing_file = gateway(&simulator).upload_header(&credentials("token"), &file).await;
    assert!(
        matches!(missing_file, Err(GatewayError::Unavailable(_))),
        "{missing_file:?}"
    );
}

/// Adds a template with a video and two cards with images, and returns a message for it.
fn message_with_files(simulator: &Whatsapp, source: &FileSource) -> OutboundTemplate {
    let card = json!({ "components": [{ "type": "HEADER", "format": "IMAGE" },
        { "type": "BODY", "text": "Por {{1}}." } ] });
    simulator.add_template(
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
async fn message_can_use_an_uploaded_file_or_a_link() {
    let (simulator, directory) = (start_simulator(), Directory::new());
    let (file, _store) = file(&directory).await;
    let gateway = gateway(&simulator);
    let id = gateway
        .upload_file(&credentials("token"), &(&file).into())
        .await
        .unwrap();
    let form = simulator.ledger().remove(0).request;
    assert_eq!(form.path, "/v25.0/1065/media");
    assert!(
        form.body["bytes"].as_u64().is_some_and(|bytes| bytes > 3_000_000),
        "{}",
        form.body
    );
    let message = message_with_files(&simulator, &FileSource::Id(id));
    let sent = gateway.send_template(&credentials("token"), &message).await;
    assert!(matches!(sent, SendOutcome::Accepted { .. }), "{sent:?}");
    let unknown_file = message_with_files(&simulator, &FileSource::Id("7".into()));
    let failed = gateway.send_template(&credentials("token"), &unknown_file).await;
    assert!(
        matches!(failed, SendOutcome::Failed { code: 131_053, .. }),
        "{failed:?}"
    );
    let link = message_with_files(&simulator, &FileSource::Link("https://l.example/a.mp4".into()));
    let sent = gateway.send_template(&credentials("token"), &link).await;
    assert!(matches!(sent, SendOutcome::Accepted { .. }), "{sent:?}");
}

#[tokio::test]
async fn failed_media_upload_is_an_error() {
    let directory = Directory::new();
    let (file, _store) = file(&directory).await;
    for kind in [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenStatus500,
    ] {
        let simulator = start_simulator();
        simulator.script(vec![WhatsappFault::of(On::Media, kind.clone())]);
        let failed = gateway(&simulator)
            .upload_file(&credentials("token"), &(&file).into())
            .await;
        let expected = matches!(
            failed,
            Err(GatewayError::Unavailable(_) | GatewayError::Refused { code: 131_000, .. })
        );
        assert!(expected, "{kind:?}: {failed:?}");
    }
}

#[tokio::test]
async fn template_list_returns_every_page() {
    let simulator = start_simulator();
    for number in 0..205 {
        simulator.add_template(
            &json!({ "name": format!("t{number}"), "language": "pt_BR", "category": "UTILITY",
            "components": [{ "type": "BODY", "text": "Oi" }] }),
        );
    }
    let gateway = gateway(&simulator);
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
async fn failed_template_list_is_unavailable() {
    let simulator = start_simulator();
    simulator.add_template(&json!({ "name": "t", "language": "pt_BR", "components": [] }));
    for kind in [
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::Hang { ms: 60_000 },
    ] {
        simulator.script(vec![WhatsappFault::of(On::List, kind.clone())]);
        let failed = gateway(&simulator).list_templates(&credentials("token"), None).await;
        assert!(
            matches!(failed, Err(GatewayError::Unavailable(_))),
            "{kind:?}: {failed:?}"
        );
    }
    let unset = api(None).list_templates(&credentials("token"), None).await;
    assert!(matches!(unset, Err(GatewayError::NotConfigured(_))), "{unset:?}");
}
