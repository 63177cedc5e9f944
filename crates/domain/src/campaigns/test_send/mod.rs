//! Test sends: one message of a campaign to one phone number, rendered as a run renders it, outside all statistics.
//!
//! A test send is not stored as a send. It leaves an audit entry and uses one message of the month's quota. It reserves
//! the message before the call to WhatsApp, and releases it if the message certainly did not leave. Nothing is retried:
//! the caller waits for the response and decides.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use thiserror::Error;
use time::{Date, Duration};

use super::preconditions::{approved_template, check_number, missing_values};
use super::run_context::{RunContext, file_sources, values};
use super::{Campaign, CampaignRefusal, Recipient, RunInputs, SendRate, TestRecipient, TestSendFacts, TestSendStore};
use crate::contacts::{Phone, check_wa_user_id};
use crate::media::MediaStoreError;
use crate::messaging::{AddressKind, SendOutcome, WhatsappCredentials, WhatsappGateway};
use crate::shared::text::single_spaced;
use crate::shared::{
    AuditAction, CampaignId, Cipher, ContactId, ErrorReport, Event, FieldErrors, GatewayError, Ids, SendId, SideStep,
    StoreError, Tenant, redacted_debug,
};
use crate::templates::{MessageValues, Template};
use crate::whatsapp::{MessageFileError, MessageFiles};

/// The result of a test send.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TestSendReport {
    /// Whether the message was sent. Always true: every other outcome is an error response.
    #[schemars(example = true)]
    pub sent: bool,
    /// Whether the test send was simulated: no WhatsApp number is connected, so no message was sent.
    pub simulated: bool,
    /// WhatsApp's id of the message; null when the test send was simulated.
    #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABEYEjVBQ0Q3")]
    pub wa_message_id: Option<String>,
}

redacted_debug!(TestSendReport { sent, simulated });

/// Why a test send failed, or may have failed.
#[derive(Debug, Error)]
pub enum TestSendError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The state of the campaign, its template or its plan does not allow a test send.
    #[error(transparent)]
    Refused(#[from] CampaignRefusal),
    /// The number or a file of the template cannot be used. The message is published.
    #[error("{0}")]
    Unready(String),
    /// The media store failed to return a file of the template.
    #[error(transparent)]
    Media(MediaStoreError),
    /// WhatsApp rejected the message or could not be reached.
    #[error("WhatsApp did not accept the message")]
    Gateway(#[source] GatewayError),
    #[error("the outcome is unknown: WhatsApp may have the message")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<MessageFileError> for TestSendError {
    fn from(error: MessageFileError) -> Self {
        match error {
            MessageFileError::Unusable(message) => Self::Unready(message),
            MessageFileError::Media(error) => Self::Media(error),
            MessageFileError::Gateway(error) => Self::Gateway(error),
            MessageFileError::Store(error) => Self::Store(error),
        }
    }
}

/// The unchecked recipient of a test send.
#[derive(Clone, Default)]
pub struct TestSendInput {
    pub phone: Option<String>,
    pub contact_id: Option<ContactId>,
    pub wa_user_id: Option<String>,
}

redacted_debug!(TestSendInput { contact_id });

impl TestSendInput {
    /// Requires exactly one valid recipient.
    fn check(self) -> Result<TestRecipient, FieldErrors> {
        match (self.phone, self.contact_id, self.wa_user_id) {
            (None, Some(id), None) => Ok(TestRecipient::Contact(id)),
            (None, None, Some(id)) => check_wa_user_id(id)
                .map(TestRecipient::User)
                .ok_or_else(|| FieldErrors::one("wa_user_id", "is not a valid WhatsApp user id")),
            (phone, None, None) => Phone::parse(&phone.unwrap_or_default())
                .map(TestRecipient::Phone)
                .ok_or_else(|| FieldErrors::one("phone", "is not a phone number")),
            (_, Some(_), _) => Err(FieldErrors::one("contact_id", ONE_RECIPIENT)),
            (Some(_), None, Some(_)) => Err(FieldErrors::one("wa_user_id", ONE_RECIPIENT)),
        }
    }
}

const ONE_RECIPIENT: &str = "must be the only one of phone, contact_id and wa_user_id";

/// The use case of test sends.
pub struct TestSends {
    store: Arc<dyn TestSendStore>,
    gateway: Arc<dyn WhatsappGateway>,
    files: MessageFiles,
    cipher: Arc<dyn Cipher>,
    report: Arc<dyn ErrorReport>,
    ids: Arc<dyn Ids>,
}

/// A test send that is allowed, if the month's quota has a message left.
struct TestSend {
    inputs: RunInputs,
    recipient: Recipient,
    values: MessageValues,
    monthly_limit: i64,
}

impl TestSends {
    pub fn new(
        store: Arc<dyn TestSendStore>,
        gateway: Arc<dyn WhatsappGateway>,
        files: MessageFiles,
        cipher: Arc<dyn Cipher>,
        report: Arc<dyn ErrorReport>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            gateway,
            files,
            cipher,
            report,
            ids,
        }
    }

    /// Sends one message of the campaign to one person, whatever the campaign's status.
    pub async fn send(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        to: TestSendInput,
    ) -> Result<TestSendReport, TestSendError> {
        let to = to.check()?;
        let account = tenant.account_id;
        let facts = self.store.facts(account, id, &to).await?;
        let test_send = prepare(facts.ok_or(TestSendError::NotFound)?, to)?;
        let (recipient, values, limit) = (test_send.recipient, test_send.values, test_send.monthly_limit);
        let context = self.run_context(tenant, test_send.inputs).await?;
        // The audit log is permanent, so it MUST NOT contain the phone number, which is personal data.
        let changes = json!({ "simulated": context.credentials.is_none() });
        let audit = tenant.audit(AuditAction::Create, "campaign_test", id);
        let events = [Event::Audit(audit.with_changes(changes))];
        let month = self.store.reserve_message(account, limit, &events).await?;
        let month = month.ok_or(CampaignRefusal::MonthUsedUp { limit })?;
        let Some(credentials) = &context.credentials else {
            return Ok(sent(None));
        };
        let to = context.address(&recipient).ok_or(CampaignRefusal::NoAddress)?;
        let message = context.message(SendId(self.ids.next()), to, &values);
        let outcome = self.gateway.send_template(credentials, &message).await;
        self.conclude(tenant, month, outcome).await
    }

    async fn run_context(&self, tenant: &Tenant, inputs: RunInputs) -> Result<RunContext, TestSendError> {
        let credentials = self.credentials(tenant, &inputs)?;
        let gateway = self.gateway.as_ref();
        let files = match &credentials {
            Some(credentials) => {
                file_sources(&self.files, gateway, tenant.account_id, credentials, &inputs.template).await?
            }
            None => HashMap::new(),
        };
        Ok(RunContext {
            inputs,
            credentials,
            // A single message needs no rate limit.
            send_rate: SendRate::Delay(Duration::ZERO),
            files,
        })
    }

    /// The credentials of the sending number. None if the test send is simulated.
    fn credentials(&self, tenant: &Tenant, inputs: &RunInputs) -> Result<Option<WhatsappCredentials>, TestSendError> {
        let Some(profile) = &inputs.profile else {
            return Ok(None);
        };
        let credentials = profile.credentials(tenant.account_id, self.cipher.as_ref());
        let unreadable = "the access token of the WhatsApp number cannot be read; enter it again";
        credentials
            .map(Some)
            .ok_or_else(|| TestSendError::Unready(unreadable.to_owned()))
    }

    async fn conclude(
        &self,
        tenant: &Tenant,
        month: Date,
        outcome: SendOutcome,
    ) -> Result<TestSendReport, TestSendError> {
        match (outcome.refusal(), outcome) {
            (Some(refusal), _) => {
                // If the release fails, the month has one message less. The caller needs WhatsApp's error instead.
                if let Err(error) = self.store.release_message(tenant.account_id, month).await {
                    self.report.swallowed(SideStep::ReturnTestQuota, &error);
                }
                Err(TestSendError::Gateway(refusal))
            }
            (None, SendOutcome::Accepted { message_id, .. }) => Ok(sent(Some(message_id))),
            // The message may have left, so its reservation stays.
            (None, _) => Err(TestSendError::Unknown),
        }
    }
}

fn sent(wa_message_id: Option<String>) -> TestSendReport {
    TestSendReport {
        sent: true,
        simulated: wa_message_id.is_none(),
        wa_message_id,
    }
}

/// Decides whether a test send is allowed, whatever the campaign's status and audience.
fn prepare(facts: TestSendFacts, to: TestRecipient) -> Result<TestSend, TestSendError> {
    let run = facts.run;
    // An unknown contact is an error of the body, which comes before the refusals.
    let (recipient, opted_out) = match facts.contact {
        Some(contact) => (contact.recipient, contact.opted_out),
        None => (unknown_recipient(to)?, false),
    };
    let template = approved_template(&run)?.clone();
    if let Some(refusal) = missing_values(&run).into_iter().next() {
        return Err(refusal.into());
    }
    check_number(&run)?;
    let monthly_limit = run
        .billing
        .messages_per_month(run.now)
        .ok_or(CampaignRefusal::NoActivePlan)?;
    if opted_out {
        return Err(CampaignRefusal::OptedOut.into());
    }
    let address = recipient.address().map(|to| to.kind());
    if address.is_none_or(|kind| kind == AddressKind::UserId && template.category.needs_phone()) {
        return Err(CampaignRefusal::NoAddress.into());
    }
    let values = values_or_examples(&run.campaign, &template, &recipient)?;
    if values.offer_ends_too_early(&template, run.now) {
        return Err(CampaignRefusal::OfferEnded.into());
    }
    Ok(TestSend {
        values,
        inputs: RunInputs {
            campaign: run.campaign,
            template,
            profile: facts.profile,
        },
        recipient,
        monthly_limit,
    })
}

/// A recipient who is not a contact of the account.
fn unknown_recipient(to: TestRecipient) -> Result<Recipient, FieldErrors> {
    match to {
        TestRecipient::Contact(_) => Err(FieldErrors::one("contact_id", "does not exist")),
        TestRecipient::Phone(phone) => Ok(Recipient {
            phone: phone.to_string(),
            ..Recipient::default()
        }),
        TestRecipient::User(id) => Ok(Recipient {
            user_id: Some(id),
            ..Recipient::default()
        }),
    }
}

/// The values of the message. An empty value of a placeholder is replaced by the template's example.
fn values_or_examples(
    campaign: &Campaign,
    template: &Template,
    recipient: &Recipient,
) -> Result<MessageValues, CampaignRefusal> {
    let mut values = values(campaign, template, recipient);
    for (value, placeholder) in values.placeholders.iter_mut().zip(template.placeholders()) {
        if value.is_empty() {
            *value = single_spaced(&placeholder.example);
        }
        if value.is_empty() {
            return Err(CampaignRefusal::EmptyPlaceholder {
                placeholder: placeholder.key,
            });
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
