//! The call of one send.

use crate::campaigns::{ClaimedSend, Recipient, SendStore};
use crate::messaging::{
    AddressKind, Addressee, ErrorClass, OutboundTemplate, SendOutcome, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{AccountId, ContactId};

/// Calls WhatsApp. If it wants a phone number instead of a user id, the message certainly did not leave, and is tried
/// once by a number that has become known since the claim.
pub(super) async fn send_template(
    gateway: &dyn WhatsappGateway,
    credentials: &WhatsappCredentials,
    mut message: OutboundTemplate,
    sends: &dyn SendStore,
    (account, contact): (AccountId, ContactId),
) -> SendOutcome {
    let outcome = gateway.send_template(credentials, &message).await;
    let is_user = message.to.kind() == AddressKind::UserId;
    if !is_user || outcome.class() != Some(ErrorClass::PhoneRequired) {
        return outcome;
    }
    match sends.phone_of(account, contact).await {
        Ok(Some(phone)) => {
            message.to = Addressee::Phone(phone);
            gateway.send_template(credentials, &message).await
        }
        Ok(None) | Err(_) => outcome,
    }
}

/// Keeps only a new id: the id of most recipients is their phone number.
pub(super) fn keep_new_wa_id(outcome: &mut SendOutcome, send: &ClaimedSend, recipient: &Recipient) {
    if let SendOutcome::Accepted { wa_id, .. } = outcome {
        wa_id.take_if(|id| send.wa_id.as_ref() == Some(id) || recipient.phone.strip_prefix('+') == Some(id));
    }
}
