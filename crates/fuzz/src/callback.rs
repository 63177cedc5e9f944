//! `CloudCallbackReader`: any body of a callback is read or refused, and what is read holds what the stores rely on.

use recado_domain::callbacks::{CallbackChange, CallbackPayload, CallbackReader as _};
use recado_domain::messaging::SendStatus;
use recado_gateways::whatsapp::CloudCallbackReader;

pub(super) fn run(body: &[u8]) {
    let Ok(payload) = CloudCallbackReader.read(body) else {
        return;
    };
    let CallbackPayload { changes, unread } = &payload;
    // Each change and each unread part has text of its own in the body.
    assert!(changes.len() + unread.len() <= body.len());
    for change in changes {
        if let CallbackChange::Status(status) = change {
            assert!(!status.phone_number_id.is_empty());
            assert!(!status.update.message_id.is_empty());
            assert_ne!(status.update.status, SendStatus::Pending);
        }
    }
    assert_eq!(
        CloudCallbackReader.read(body).ok().as_ref(),
        Some(&payload),
        "read twice"
    );
}
