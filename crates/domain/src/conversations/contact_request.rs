//! Contact requests: asks a contact whose phone number WhatsApp hides for it. The answer is a contact card, which the
//! inbox applies.

use super::service::Conversations;
use super::{ContactRequestOutcome, ConversationError, Message, ReplyDraft, ReplyFacts, ReplyRefusal, prepare};
use crate::direct_messages::RequestedContent;
use crate::messaging::{Addressee, MessageContent, OutboundMessage, WhatsappCredentials};
use crate::shared::{AccountId, Cipher, ConversationId, FieldErrors, Tenant};

const TEXT_CHARS: usize = 1024;

/// The text for each language of templates, by its first two letters. The first is the default.
const TEXTS: [(&str, &str); 3] = [
    (
        "pt",
        "Para continuar o atendimento, compartilhe seu número de telefone pelo botão abaixo.",
    ),
    (
        "en",
        "To continue, please share your phone number with the button below.",
    ),
    (
        "es",
        "Para continuar, comparte tu número de teléfono con el botón de abajo.",
    ),
];

impl Conversations {
    /// Asks the contact for the phone number. Stored, sent and recorded like a reply.
    pub async fn request_phone(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        text: Option<String>,
    ) -> Result<Message, ConversationError> {
        let text = text.map(check_text).transpose()?;
        let account = tenant.account_id;
        let facts = self.store.reply_facts(account, id, None).await?;
        let facts = facts.ok_or(ConversationError::NotFound)?;
        let (credentials, to) = prepare_request(account, &facts, self.cipher.as_ref())?;
        let profile = facts.profile.as_ref().ok_or(ReplyRefusal::NoNumber)?;
        let text = match text {
            Some(text) => text,
            None => default_text(self.store.template_language(account).await?.as_deref()).to_owned(),
        };
        let content = MessageContent::ContactRequest(text);
        let draft = ReplyDraft {
            id: self.ids.next().into(),
            conversation_id: facts.conversation.id,
            profile_id: profile.profile.id,
            content: RequestedContent::FreeForm(content.clone()),
            template_id: None,
            text: content.text().map(str::to_owned),
            context: None,
            address: to.kind(),
            created_at: facts.now,
            monthly_limit: None,
        };
        let stored = match self.store.begin_contact_request(account, &draft).await? {
            ContactRequestOutcome::Stored(stored) => *stored,
            ContactRequestOutcome::AskedAlready => return Err(ReplyRefusal::AskedAlready.into()),
            ContactRequestOutcome::Missing => return Err(ConversationError::NotFound),
        };
        let message = OutboundMessage {
            message_id: draft.id,
            to,
            reply_to: None,
            content,
            file: None,
        };
        let outcome = self.gateway.send_message(&credentials, &message).await;
        self.record(account, stored, outcome).await
    }
}

fn check_text(text: String) -> Result<String, FieldErrors> {
    if text.trim().is_empty() || text.chars().count() > TEXT_CHARS {
        return Err(FieldErrors::one(
            "text",
            format!("must have 1 to {TEXT_CHARS} characters"),
        ));
    }
    Ok(text)
}

/// Checks whether a contact request may be sent. Returns the credentials and the recipient.
fn prepare_request(
    account: AccountId,
    facts: &ReplyFacts,
    cipher: &dyn Cipher,
) -> Result<(WhatsappCredentials, Addressee), ReplyRefusal> {
    match prepare(account, facts, cipher) {
        Err(ReplyRefusal::WindowClosed) => Err(ReplyRefusal::WindowClosed),
        _ if facts.phone.is_some() || facts.wa_id.is_some() => Err(ReplyRefusal::PhoneKnown),
        prepared => prepared,
    }
}

fn default_text(language: Option<&str>) -> &'static str {
    let [(_, default), ..] = TEXTS;
    let known = TEXTS
        .iter()
        .find(|(prefix, _)| language.is_some_and(|language| language.split('_').next() == Some(prefix)));
    known.map_or(default, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::super::reply::tests::{NOW, facts};
    use super::super::service::tests::{ID, conversations, pending, tenant};
    use super::super::{MockConversationStore, ReplyResult};
    use super::*;
    use crate::messaging::{MockWhatsappGateway, SendOutcome, WINDOW};
    use crate::whatsapp::verification::VerificationRecord;

    fn hidden() -> ReplyFacts {
        ReplyFacts {
            phone: None,
            wa_id: None,
            ..facts()
        }
    }

    /// A store of a contact without a phone number, and a gateway that expects one call and accepts it.
    fn mock_request(expected: &'static str) -> (MockConversationStore, MockWhatsappGateway) {
        let mut order = mockall::Sequence::new();
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _, _| Ok(Some(hidden())));
        store
            .expect_begin_contact_request()
            .times(1)
            .in_sequence(&mut order)
            .withf(move |_, draft| draft.created_at == NOW && draft.text.as_deref() == Some(expected))
            .returning(|_, draft| Ok(ContactRequestOutcome::Stored(Box::new(pending(draft)))));
        let mut gateway = MockWhatsappGateway::new();
        gateway
            .expect_send_message()
            .times(1)
            .in_sequence(&mut order)
            .withf(move |_, message| {
                message.to == Addressee::User("BR.1".into())
                    && message.content == MessageContent::ContactRequest(expected.to_owned())
            })
            .return_once(|_, _| SendOutcome::Accepted {
                message_id: "wamid.1".into(),
                wa_id: None,
            });
        store
            .expect_record_reply()
            .times(1)
            .in_sequence(&mut order)
            .withf(|_, _, result| matches!(result, ReplyResult::Sent { message_id, .. } if message_id == "wamid.1"))
            .returning(|_, _, _| Ok(None));
        (store, gateway)
    }

    #[tokio::test]
    async fn contact_request_is_stored_then_sent_then_recorded() {
        let (store, gateway) = mock_request("Qual é o seu número?");
        let text = Some("Qual é o seu número?".to_owned());
        let message = conversations(store, gateway).request_phone(&tenant(), ID, text).await;
        assert_eq!(message.unwrap().kind, "contact_request");
    }

    #[tokio::test]
    async fn contact_request_without_text_asks_in_the_templates_language() {
        let (mut store, gateway) = mock_request(TEXTS[1].1);
        store.expect_template_language().returning(|_| Ok(Some("en_US".into())));
        conversations(store, gateway)
            .request_phone(&tenant(), ID, None)
            .await
            .unwrap();
        for (language, text) in [
            (None, 0),
            (Some("pt_BR"), 0),
            (Some("pt"), 0),
            (Some("en"), 1),
            (Some("es_AR"), 2),
            (Some("de"), 0),
        ] {
            assert_eq!(default_text(language), TEXTS[text].1, "{language:?}");
        }
    }

    #[tokio::test]
    async fn contact_request_that_may_not_be_sent_stores_nothing() {
        let mut unverified = hidden();
        if let Some(stored) = &mut unverified.profile {
            stored.profile.verification = VerificationRecord::new(NOW).verification;
        }
        let wa_id_only = ReplyFacts {
            wa_id: Some("99".into()),
            ..hidden()
        };
        let late = ReplyFacts {
            last_inbound_at: Some(NOW - WINDOW),
            ..facts()
        };
        for (facts, refusal) in [
            (late, ReplyRefusal::WindowClosed),
            (facts(), ReplyRefusal::PhoneKnown),
            (wa_id_only, ReplyRefusal::PhoneKnown),
            (unverified, ReplyRefusal::NumberUnverified),
        ] {
            let mut store = MockConversationStore::new();
            store.expect_reply_facts().return_once(|_, _, _| Ok(Some(facts)));
            let refused = conversations(store, MockWhatsappGateway::new())
                .request_phone(&tenant(), ID, Some("?".into()))
                .await;
            assert!(
                matches!(refused, Err(ConversationError::Refused(found)) if found == refusal),
                "{refusal:?}"
            );
        }
        for text in ["", "  ", &"x".repeat(1025)] {
            let refused = conversations(MockConversationStore::new(), MockWhatsappGateway::new())
                .request_phone(&tenant(), ID, Some(text.to_owned()))
                .await;
            assert!(matches!(refused, Err(ConversationError::Invalid(_))));
        }
    }

    #[tokio::test]
    async fn second_contact_request_is_not_sent() {
        for (outcome, is_refused) in [
            (ContactRequestOutcome::AskedAlready, true),
            (ContactRequestOutcome::Missing, false),
        ] {
            let mut store = MockConversationStore::new();
            store.expect_reply_facts().returning(|_, _, _| Ok(Some(hidden())));
            store.expect_begin_contact_request().return_once(|_, _| Ok(outcome));
            let result = conversations(store, MockWhatsappGateway::new())
                .request_phone(&tenant(), ID, Some("?".into()))
                .await;
            match is_refused {
                true => assert!(matches!(
                    result,
                    Err(ConversationError::Refused(ReplyRefusal::AskedAlready))
                )),
                false => assert!(matches!(result, Err(ConversationError::NotFound))),
            }
        }
    }
}
