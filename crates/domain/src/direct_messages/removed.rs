//! What stays of a message that was removed: its reference, which is never used again.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::DirectStatus;
use crate::shared::{MessageId, redacted_debug};

/// A removed message, by its reference.
#[derive(Clone, PartialEq, Eq)]
pub struct RemovedMessage {
    pub id: MessageId,
    /// The last status.
    pub status: DirectStatus,
    pub client_reference: String,
    /// [`request_hash`] of the request. None: nothing of the request is stored, so any request is a repetition.
    pub request_hash: Option<Vec<u8>>,
}

redacted_debug!(RemovedMessage { id, status });

impl RemovedMessage {
    /// Whether a request, in its canonical form, asked for this message.
    pub(super) fn is_repeated_by(&self, request: &Value) -> bool {
        let hash = self.request_hash.as_deref();
        hash.is_none_or(|hash| hash == request_hash(self.id, request))
    }
}

/// The hash by which a repetition is recognized after the request is gone. With the id in it, equal requests of two
/// messages have different hashes. The fields of a JSON object are in alphabetical order.
pub fn request_hash(id: MessageId, request: &Value) -> [u8; 32] {
    let hash = Sha256::new()
        .chain_update(id.0.as_bytes())
        .chain_update(request.to_string().as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn removed_message_recognizes_its_own_request() {
        let (id, other) = (MessageId(Uuid::from_u128(1)), MessageId(Uuid::from_u128(2)));
        let request = json!({ "to": { "phone": "+551199" }, "text": "Oi" });
        let mut removed = RemovedMessage {
            id,
            status: DirectStatus::Sent,
            client_reference: "r1".into(),
            request_hash: Some(request_hash(id, &request).to_vec()),
        };
        // The order of the fields does not matter.
        assert!(removed.is_repeated_by(&json!({ "text": "Oi", "to": { "phone": "+551199" } })));
        assert!(!removed.is_repeated_by(&json!({ "text": "Tchau", "to": { "phone": "+551199" } })));
        assert_ne!(request_hash(id, &request), request_hash(other, &request));
        removed.request_hash = None;
        assert!(removed.is_repeated_by(&json!({})));
        assert!(!format!("{removed:?}").contains("r1"));
    }
}
