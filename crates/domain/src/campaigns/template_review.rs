//! What WhatsApp's refusal of a message says about its template.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::RunStore;
use crate::media::MediaFile;
use crate::messaging::{
    MetaStatus, OutboundMessage, OutboundTemplate, RemotePage, SendOutcome, SubmittedTemplate, TemplateSubmission,
    UploadFile, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{
    AccountId, Clock, ErrorReport, GatewayError, SideStep, StoreError, TemplateId, WriteOutcome, retry_on_conflict,
};
use crate::templates::{TemplateKey, TemplateStore, apply_review, review_events};

/// Stores the review status that a refusal implies, unless the template was changed since its submission.
pub(crate) async fn save_review(
    templates: &dyn TemplateStore,
    account: AccountId,
    template: TemplateId,
    status: MetaStatus,
    now: OffsetDateTime,
) -> Result<(), StoreError> {
    retry_on_conflict(async || {
        // Read the stored template, not the content of the message, since it is written back.
        let Some(template) = templates.find(account, template).await? else {
            return Ok(Some(()));
        };
        let Some(reviewed) = apply_review(&template, status.into(), now) else {
            return Ok(Some(()));
        };
        let events = review_events(&template, &reviewed);
        let outcome = templates.update(&reviewed, &template, &events).await?;
        Ok((!matches!(outcome, WriteOutcome::Stale(_))).then_some(()))
    })
    .await
}

/// Passes every call on. If WhatsApp refuses a message because its template is paused or disabled, it stores that and
/// pauses the runs of the template.
///
/// For messages outside of runs: the worker of a run does the same, and pauses its own run with WhatsApp's reason.
pub struct ReviewingGateway {
    pub gateway: Arc<dyn WhatsappGateway>,
    pub templates: Arc<dyn TemplateStore>,
    pub runs: Arc<dyn RunStore>,
    pub report: Arc<dyn ErrorReport>,
    pub clock: Arc<dyn Clock>,
}

impl ReviewingGateway {
    async fn review(&self, account: AccountId, key: TemplateKey, status: MetaStatus) -> Result<(), StoreError> {
        for template in self.templates.named(account, &[key]).await? {
            // Pauses first, even if the template itself does not change: an interrupted attempt repeats both steps.
            if let Some(reason) = status.pause_reason() {
                self.runs.pause_template(account, template.id, reason).await?;
            }
            save_review(self.templates.as_ref(), account, template.id, status, self.clock.now()).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl WhatsappGateway for ReviewingGateway {
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome {
        let outcome = self.gateway.send_template(credentials, message).await;
        let status = match &outcome {
            SendOutcome::RunBlocked { cause, .. } => cause.template_status(),
            _ => None,
        };
        if let Some(status) = status {
            let key = TemplateKey {
                name: message.template.clone(),
                language: message.language.clone(),
            };
            if let Err(error) = self.review(credentials.profile.account_id, key, status).await {
                self.report.swallowed(SideStep::ReviewTemplate, &error);
            }
        }
        outcome
    }

    async fn send_message(&self, credentials: &WhatsappCredentials, message: &OutboundMessage) -> SendOutcome {
        self.gateway.send_message(credentials, message).await
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
        self.gateway.list_templates(credentials, after).await
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockRunStore;
    use super::*;
    use crate::messaging::{Addressee, BlockCause, MockWhatsappGateway, ProfileKey};
    use crate::shared::{Event, MockClock, MockErrorReport};
    use crate::templates::MockTemplateStore;
    use crate::templates::tests::approved_template;

    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

    fn credentials() -> WhatsappCredentials {
        WhatsappCredentials {
            profile: ProfileKey {
                account_id: ACCOUNT,
                profile_id: Uuid::from_u128(2).into(),
            },
            phone_number_id: "1065".into(),
            waba_id: "102".into(),
            token: "token".into(),
        }
    }

    fn message() -> OutboundTemplate {
        let template = approved_template("Oi", &[]);
        OutboundTemplate {
            send_id: Uuid::from_u128(7).into(),
            to: Addressee::Phone("+5511961234567".into()),
            reply_to: None,
            template: template.name,
            language: template.language,
            header: vec![],
            header_file: None,
            header_location: None,
            offer_expires_at: None,
            body: vec![],
            buttons: vec![],
            cards: vec![],
        }
    }

    fn refused(cause: BlockCause) -> SendOutcome {
        SendOutcome::RunBlocked {
            code: 132_015,
            cause,
            message: "refused".into(),
        }
    }

    async fn send(outcome: SendOutcome, templates: MockTemplateStore, runs: MockRunStore, report: MockErrorReport) {
        let mut gateway = MockWhatsappGateway::new();
        let answer = outcome.clone();
        gateway.expect_send_template().return_once(move |_, _| answer);
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-02 12:00 UTC));
        let gateway = ReviewingGateway {
            gateway: Arc::new(gateway),
            templates: Arc::new(templates),
            runs: Arc::new(runs),
            report: Arc::new(report),
            clock: Arc::new(clock),
        };
        assert_eq!(gateway.send_template(&credentials(), &message()).await, outcome);
    }

    #[tokio::test]
    async fn refused_template_gets_whatsapps_status_and_its_runs_pause() {
        for (cause, status) in [
            (BlockCause::TemplatePaused, MetaStatus::Paused),
            (BlockCause::TemplateDisabled, MetaStatus::Disabled),
        ] {
            let template = approved_template("Oi", &[]);
            let (named, found, id) = (template.clone(), template.clone(), template.id);
            let mut templates = MockTemplateStore::new();
            templates
                .expect_named()
                .withf(|_, keys| keys == [TemplateKey::from(&approved_template("Oi", &[]))])
                .return_once(move |_, _| Ok(vec![named]));
            templates.expect_find().return_once(move |_, _| Ok(Some(found)));
            templates
                .expect_update()
                .once()
                .withf(move |after, before, events| {
                    after.meta_status == status
                        && *before == approved_template("Oi", &[])
                        && matches!(events, [Event::Notification(_)])
                })
                .returning(|_, _, _| Ok(WriteOutcome::Done));
            let mut runs = MockRunStore::new();
            runs.expect_pause_template()
                .once()
                .withf(move |_, template, reason| *template == id && Some(reason) == status.pause_reason())
                .returning(|_, _, _| Ok(()));
            send(refused(cause), templates, runs, MockErrorReport::new()).await;
        }
    }

    #[tokio::test]
    async fn other_refusals_leave_the_template_alone() {
        for outcome in [
            refused(BlockCause::Template),
            refused(BlockCause::Token),
            SendOutcome::Unknown { detail: "reset".into() },
        ] {
            send(
                outcome,
                MockTemplateStore::new(),
                MockRunStore::new(),
                MockErrorReport::new(),
            )
            .await;
        }
        let mut templates = MockTemplateStore::new();
        templates
            .expect_named()
            .returning(|_, _| Err(StoreError::Unavailable("away".into())));
        let mut report = MockErrorReport::new();
        report
            .expect_swallowed()
            .once()
            .withf(|step, _| *step == SideStep::ReviewTemplate)
            .returning(|_, _| ());
        send(
            refused(BlockCause::TemplatePaused),
            templates,
            MockRunStore::new(),
            report,
        )
        .await;
    }
}
