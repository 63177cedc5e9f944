//! `CloudCallbackReader`: the body of a callback is read or refused, and a status that is read has the ids that the stores
//! need.

use recado_domain::callbacks::{CallbackChange, CallbackPayload, CallbackReader as _};
use recado_domain::messaging::SendStatus;
use recado_gateways::whatsapp::CloudCallbackReader;

pub(super) fn run(body: &[u8]) {
    let Ok(payload) = CloudCallbackReader.read(body) else {
        return;
    };
    let CallbackPayload { changes, unread } = &payload;
    // Each change and each unread part is a part of the body of its own, so there are at most as many as bytes.
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
