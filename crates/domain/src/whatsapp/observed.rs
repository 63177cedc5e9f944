//! A gateway that acts on what WhatsApp answers about a number or a user id.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::KnownPhones;
use super::recent::Recent;
use super::verification::VerificationStore;
use crate::media::MediaFile;
use crate::messaging::{
    Addressee, ErrorClass, ErrorCodes, OutboundMessage, OutboundTemplate, RemotePage, SendOutcome, SubmittedTemplate,
    TemplateSubmission, UploadFile, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{Clock, ErrorReport, GatewayError, ProfileId, SideStep, StoreError};

/// Passes every call on. It notes accepted messages, and asks for a check of the number after an answer with a code
/// that pauses runs. A note that fails does not change the result of the call: the message has left.
///
/// If WhatsApp wants a phone number instead of a user id, the message certainly did not leave. It is tried once by a
/// number that has become known since its address was decided.
pub struct ObservedGateway {
    gateway: Arc<dyn WhatsappGateway>,
    verifications: Arc<dyn VerificationStore>,
    phones: Arc<dyn KnownPhones>,
    report: Arc<dyn ErrorReport>,
    clock: Arc<dyn Clock>,
    codes: ErrorCodes,
    /// The profiles whose accepted messages were noted lately.
    accepted: Recent<ProfileId>,
}

impl ObservedGateway {
    pub fn new(
        gateway: Arc<dyn WhatsappGateway>,
        verifications: Arc<dyn VerificationStore>,
        phones: Arc<dyn KnownPhones>,
        report: Arc<dyn ErrorReport>,
        clock: Arc<dyn Clock>,
        codes: ErrorCodes,
    ) -> Self {
        Self {
            gateway,
            verifications,
            phones,
            report,
            clock,
            codes,
            accepted: Recent::default(),
        }
    }

    /// `service_messages`: how many service messages were sent. Each of them counts, so it is always noted.
    async fn note(&self, credentials: &WhatsappCredentials, outcome: &SendOutcome, service_messages: i64) {
        let profile = credentials.profile;
        match outcome {
            SendOutcome::Accepted { .. } => {
                let is_due = self.accepted.is_due(profile.profile_id, self.clock.now());
                if is_due || service_messages > 0 {
                    let noted =
                        self.verifications
                            .note_accepted(profile.account_id, profile.profile_id, service_messages);
                    self.report_failure(noted.await);
                }
            }
            SendOutcome::RunBlocked { .. } => self.request_check(credentials).await,
            SendOutcome::Failed { .. }
            | SendOutcome::Throttled { .. }
            | SendOutcome::Unknown { .. }
            | SendOutcome::OpaqueRejection { .. } => {}
        }
    }

    async fn request_check(&self, credentials: &WhatsappCredentials) {
        let profile = credentials.profile;
        let requested = self.verifications.request_check(profile.account_id, profile.profile_id);
        self.report_failure(requested.await);
    }

    /// The phone number for a message that WhatsApp refused to send to a user id. It is noted before the call, so that
    /// a message whose outcome stays unknown has the address of its last call.
    async fn phone_instead(
        &self,
        credentials: &WhatsappCredentials,
        to: &Addressee,
        message: Uuid,
        outcome: &SendOutcome,
    ) -> Option<Addressee> {
        let Addressee::User(user_id) = to else { return None };
        if outcome.class() != Some(ErrorClass::PhoneRequired) {
            return None;
        }
        let phone = match self.phones.phone_of(credentials.profile, user_id).await {
            Ok(phone) => phone?,
            Err(error) => {
                self.report.swallowed(SideStep::FindPhone, &error);
                return None;
            }
        };
        let account = credentials.profile.account_id;
        if let Err(error) = self.phones.note_sent_to_phone(account, message).await {
            self.report.swallowed(SideStep::NoteAddress, &error);
        }
        Some(Addressee::Phone(phone))
    }

    fn report_failure(&self, noted: Result<(), StoreError>) {
        if let Err(error) = noted {
            self.report.swallowed(SideStep::NoteNumber, &error);
        }
    }
}

#[async_trait]
impl WhatsappGateway for ObservedGateway {
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome {
        let mut outcome = self.gateway.send_template(credentials, message).await;
        if let Some(to) = self
            .phone_instead(credentials, &message.to, message.send_id.0, &outcome)
            .await
        {
            let by_phone = OutboundTemplate { to, ..message.clone() };
            outcome = self.gateway.send_template(credentials, &by_phone).await;
        }
        self.note(credentials, &outcome, 0).await;
        outcome
    }

    async fn send_message(&self, credentials: &WhatsappCredentials, message: &OutboundMessage) -> SendOutcome {
        let mut outcome = self.gateway.send_message(credentials, message).await;
        if let Some(to) = self
            .phone_instead(credentials, &message.to, message.message_id.0, &outcome)
            .await
        {
            let by_phone = OutboundMessage { to, ..message.clone() };
            outcome = self.gateway.send_message(credentials, &by_phone).await;
        }
        self.note(credentials, &outcome, 1).await;
        outcome
    }

    async fn submit_template<'a>(
        &self,
        credentials: &WhatsappCredentials,
        submission: &TemplateSubmission,
        meta_template_id: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError> {
        self.gateway
            .submit_template(credentials, submission, meta_template_id)
            .await
    }

    async fn upload_header(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError> {
        self.gateway.upload_header(credentials, file).await
    }

    async fn upload_file(&self, credentials: &WhatsappCredentials, file: &UploadFile) -> Result<String, GatewayError> {
        self.gateway.upload_file(credentials, file).await
    }

    async fn list_templates<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError> {
        let page = self.gateway.list_templates(credentials, after).await;
        if matches!(&page, Err(GatewayError::Refused { code, .. }) if self.codes.pauses_runs(*code)) {
            self.request_check(credentials).await;
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockKnownPhones;
    use super::super::verification::MockVerificationStore;
    use super::*;
    use crate::messaging::{BlockCause, MockWhatsappGateway, ProfileKey};
    use crate::shared::{MockClock, MockErrorReport};

    fn credentials() -> WhatsappCredentials {
        WhatsappCredentials {
            profile: ProfileKey {
                account_id: Uuid::from_u128(1).into(),
                profile_id: Uuid::from_u128(2).into(),
            },
            phone_number_id: "1065".into(),
            waba_id: "102".into(),
            token: "token".into(),
        }
    }

    fn template() -> OutboundTemplate {
        OutboundTemplate {
            send_id: Uuid::from_u128(7).into(),
            to: Addressee::Phone("+5511961234567".into()),
            reply_to: None,
            template: "t".into(),
            language: "pt_BR".into(),
            header: vec![],
            header_file: None,
            header_location: None,
            offer_expires_at: None,
            body: vec![],
            buttons: vec![],
            cards: vec![],
        }
    }

    fn text() -> OutboundMessage {
        let to = Addressee::Phone("+5511961234567".into());
        OutboundMessage::text(Uuid::from_u128(8).into(), to, "Oi")
    }

    fn observed(
        gateway: MockWhatsappGateway,
        verifications: MockVerificationStore,
        report: MockErrorReport,
    ) -> ObservedGateway {
        with_phones(gateway, verifications, MockKnownPhones::new(), report)
    }

    fn with_phones(
        gateway: MockWhatsappGateway,
        verifications: MockVerificationStore,
        phones: MockKnownPhones,
        report: MockErrorReport,
    ) -> ObservedGateway {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        ObservedGateway::new(
            Arc::new(gateway),
            Arc::new(verifications),
            Arc::new(phones),
            Arc::new(report),
            Arc::new(clock),
            ErrorCodes {
                codes: &[(ErrorClass::Blocked(BlockCause::Token), &[190])],
                ranges: &[],
            },
        )
    }

    fn accepted() -> SendOutcome {
        SendOutcome::Accepted {
            message_id: "wamid.1".into(),
            wa_id: None,
        }
    }

    fn blocked() -> SendOutcome {
        SendOutcome::RunBlocked {
            code: 190,
            cause: BlockCause::Token,
            message: "expired".into(),
        }
    }

    #[tokio::test]
    async fn accepted_templates_are_noted_once_and_each_reply_counts() {
        let mut gateway = MockWhatsappGateway::new();
        gateway.expect_send_template().times(3).returning(|_, _| accepted());
        gateway.expect_send_message().times(2).returning(|_, _| accepted());
        let mut verifications = MockVerificationStore::new();
        for (service_messages, times) in [(0, 1), (1, 2)] {
            verifications
                .expect_note_accepted()
                .times(times)
                .withf(move |account, profile, count| {
                    let key = credentials().profile;
                    (*account, *profile, *count) == (key.account_id, key.profile_id, service_messages)
                })
                .returning(|_, _, _| Ok(()));
        }
        let gateway = observed(gateway, verifications, MockErrorReport::new());
        for _ in 0..3 {
            gateway.send_template(&credentials(), &template()).await;
        }
        for _ in 0..2 {
            gateway.send_message(&credentials(), &text()).await;
        }
    }

    #[tokio::test]
    async fn code_that_pauses_runs_asks_for_a_check() {
        let mut gateway = MockWhatsappGateway::new();
        gateway.expect_send_template().returning(|_, _| blocked());
        gateway.expect_send_message().returning(|_, _| blocked());
        let mut codes = [190, 100].into_iter();
        gateway.expect_list_templates().times(2).returning(move |_, _| {
            Err(GatewayError::Refused {
                code: codes.next().unwrap(),
                message: "refused".into(),
            })
        });
        let mut verifications = MockVerificationStore::new();
        verifications
            .expect_request_check()
            .times(3)
            .withf(|account, profile| {
                let key = credentials().profile;
                (*account, *profile) == (key.account_id, key.profile_id)
            })
            .returning(|_, _| Ok(()));
        let gateway = observed(gateway, verifications, MockErrorReport::new());
        gateway.send_template(&credentials(), &template()).await;
        gateway.send_message(&credentials(), &text()).await;
        for _ in 0..2 {
            gateway.list_templates(&credentials(), None).await.unwrap_err();
        }
    }

    #[tokio::test]
    async fn other_outcomes_note_nothing_and_a_failed_note_is_reported() {
        let mut outcomes = [
            SendOutcome::Unknown { detail: "x".into() },
            SendOutcome::Failed {
                code: 131_026,
                class: ErrorClass::RecipientUnreachable,
                message: "x".into(),
            },
            accepted(),
        ]
        .into_iter();
        let mut gateway = MockWhatsappGateway::new();
        gateway
            .expect_send_template()
            .times(3)
            .returning(move |_, _| outcomes.next().unwrap());
        let mut verifications = MockVerificationStore::new();
        verifications
            .expect_note_accepted()
            .times(1)
            .returning(|_, _, _| Err(StoreError::Unavailable("away".into())));
        let mut report = MockErrorReport::new();
        report
            .expect_swallowed()
            .times(1)
            .withf(|step, _| *step == SideStep::NoteNumber)
            .returning(|_, _| ());
        let gateway = observed(gateway, verifications, report);
        gateway.send_template(&credentials(), &template()).await;
        gateway.send_template(&credentials(), &template()).await;
        let sent = gateway.send_template(&credentials(), &template()).await;
        assert!(matches!(sent, SendOutcome::Accepted { .. }), "{sent:?}");
    }

    fn phone_required() -> SendOutcome {
        SendOutcome::Failed {
            code: 131_062,
            class: ErrorClass::PhoneRequired,
            message: "no".into(),
        }
    }

    /// The addresses of the calls for one message to `to`. WhatsApp answers `first`, then accepts.
    async fn called(
        to: Addressee,
        first: SendOutcome,
        phone: Result<Option<&'static str>, StoreError>,
        report: MockErrorReport,
    ) -> Vec<Addressee> {
        let mut phones = MockKnownPhones::new();
        phones
            .expect_phone_of()
            .withf(|number, id| *number == credentials().profile && id == "BR.1")
            .returning(move |_, _| match &phone {
                Ok(phone) => Ok(phone.map(str::to_owned)),
                Err(error) => Err(StoreError::Unavailable(error.to_string().into())),
            });
        let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (noted_messages, calls_before) = (noted.clone(), calls.clone());
        phones.expect_note_sent_to_phone().returning(move |_, message| {
            assert_eq!(calls_before.lock().unwrap().len(), 1, "before the second call");
            noted_messages.lock().unwrap().push(message);
            Ok(())
        });
        let (template_calls, message_calls) = (calls.clone(), calls.clone());
        let mut gateway = MockWhatsappGateway::new();
        let mut template_outcomes = vec![accepted(), first.clone()];
        gateway.expect_send_template().returning(move |_, message| {
            template_calls.lock().unwrap().push(message.to.clone());
            template_outcomes.pop().unwrap()
        });
        let mut message_outcomes = vec![accepted(), first];
        gateway.expect_send_message().returning(move |_, message| {
            message_calls.lock().unwrap().push(message.to.clone());
            message_outcomes.pop().unwrap()
        });
        let mut verifications = MockVerificationStore::new();
        verifications.expect_note_accepted().returning(|_, _, _| Ok(()));
        let gateway = with_phones(gateway, verifications, phones, report);
        let by_template = OutboundTemplate {
            to: to.clone(),
            ..template()
        };
        gateway.send_template(&credentials(), &by_template).await;
        let template_calls = std::mem::take(&mut *calls.lock().unwrap());
        gateway
            .send_message(&credentials(), &OutboundMessage { to, ..text() })
            .await;
        assert_eq!(*calls.lock().unwrap(), template_calls, "both kinds alike");
        let by_phone = if template_calls.len() > 1 { vec![7, 8] } else { vec![] };
        assert_eq!(
            *noted.lock().unwrap(),
            by_phone.into_iter().map(Uuid::from_u128).collect::<Vec<_>>()
        );
        template_calls
    }

    #[tokio::test]
    async fn refused_user_id_is_tried_once_by_a_phone_that_became_known() {
        let user = Addressee::User("BR.1".into());
        let phone = Addressee::Phone("+5511961234567".into());
        let known = || Ok(Some("+5511961234567"));
        let other = SendOutcome::Failed {
            code: 131_026,
            class: ErrorClass::RecipientUnreachable,
            message: "x".into(),
        };
        let report = MockErrorReport::new;
        let both = [user.clone(), phone.clone()];
        assert_eq!(called(user.clone(), phone_required(), known(), report()).await, both);
        let user_alone = [user.clone()];
        assert_eq!(
            called(user.clone(), phone_required(), Ok(None), report()).await,
            user_alone
        );
        assert_eq!(called(user.clone(), other, known(), report()).await, user_alone);
        assert_eq!(
            called(phone.clone(), phone_required(), known(), report()).await,
            [phone]
        );
        let mut reported = report();
        reported
            .expect_swallowed()
            .times(2)
            .withf(|step, _| *step == SideStep::FindPhone)
            .returning(|_, _| ());
        let away = Err(StoreError::Unavailable("away".into()));
        assert_eq!(called(user, phone_required(), away, reported).await, user_alone);
    }
}
