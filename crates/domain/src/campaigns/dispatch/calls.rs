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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use uuid::Uuid;

    use super::*;
    use crate::campaigns::MockSendStore;
    use crate::messaging::{MockWhatsappGateway, ProfileKey};
    use crate::shared::SendId;
    use crate::templates::MessageValues;
    use crate::templates::tests::approved_template;

    fn failed(class: ErrorClass) -> SendOutcome {
        SendOutcome::Failed {
            code: 131_062,
            class,
            message: "no".into(),
        }
    }

    /// The addresses that WhatsApp is called with, if it refuses user ids with `class`.
    async fn called(to: Addressee, class: ErrorClass, phone: Option<&'static str>) -> Vec<Addressee> {
        let mut sends = MockSendStore::new();
        sends
            .expect_phone_of()
            .returning(move |_, _| Ok(phone.map(str::to_owned)));
        let calls = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut gateway = MockWhatsappGateway::new();
        let made = calls.clone();
        gateway.expect_send_template().returning(move |_, message| {
            made.lock().unwrap().push(message.to.clone());
            failed(class)
        });
        let credentials = WhatsappCredentials {
            profile: ProfileKey {
                account_id: AccountId(Uuid::nil()),
                profile_id: Uuid::nil().into(),
            },
            phone_number_id: "1".into(),
            waba_id: "2".into(),
            token: "t".into(),
        };
        let values = MessageValues::default();
        let message = approved_template("Oi", &[]).outbound(SendId(Uuid::nil()), to, &values, &HashMap::new());
        let contact = (AccountId(Uuid::nil()), ContactId(Uuid::nil()));
        send_template(&gateway, &credentials, message, &sends, contact).await;
        calls.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn refused_user_id_is_tried_once_by_a_phone_that_became_known() {
        let (user, phone) = (
            Addressee::User("BR.1".into()),
            Addressee::Phone("+5511961234567".into()),
        );
        let known = Some("+5511961234567");
        let user_alone = [user.clone()];
        let required = ErrorClass::PhoneRequired;
        assert_eq!(
            called(user.clone(), required, known).await,
            [user.clone(), phone.clone()]
        );
        assert_eq!(called(user.clone(), required, None).await, user_alone);
        assert_eq!(called(user, ErrorClass::RecipientRefused, known).await, user_alone);
        assert_eq!(called(phone.clone(), required, known).await, [phone]);
    }
}
