//! Tests of a campaign: one message to one phone, made as a run makes its messages, and outside all statistics.
//!
//! A test is no send: nothing of it is kept but an audit entry and one of the month's messages, which it takes before
//! the platform is called, and gives back when the message surely did not leave. Nothing is ever tried again: whoever
//! waits for the answer decides that.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, json};
use thiserror::Error;
use time::{Date, Duration};

use super::preconditions::approved_template;
use super::run_context::{RunContext, file_sources, values};
use super::{Campaign, Recipient, Refusal, RunFacts, RunInputs, SendOutcome, SendRate, TestSendStore};
use crate::contacts::Phone;
use crate::media::MediaStoreError;
use crate::shared::text::single_spaced;
use crate::shared::{
    AuditAction, CampaignId, Cipher, ErrorReport, Event, FieldErrors, GatewayError, Ids, SendId, SideStep, StoreError,
    Tenant, redacted_debug,
};
use crate::templates::Template;
use crate::whatsapp::{MessageFileError, MessageFiles, StoredProfile, WhatsappCredentials, WhatsappGateway};

/// Everything that decides whether a test may leave, of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSendFacts {
    /// The facts of a run.
    pub run: RunFacts,
    /// The number it leaves from; none when no number is connected.
    pub profile: Option<StoredProfile>,
    /// Who has the phone.
    pub contact: Option<TestSendContact>,
}

/// The contact that a test goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSendContact {
    /// What the message is made for.
    pub recipient: Recipient,
    /// Whether they do not want to be written to.
    pub opted_out: bool,
}

/// How a test went.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TestSendReport {
    /// Whether the message was sent: always true, as anything else is answered as an error.
    #[schemars(example = true)]
    pub sent: bool,
    /// Whether nobody was called, because no WhatsApp number is connected.
    pub simulated: bool,
    /// WhatsApp's id of the message; null when the test was simulated.
    #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABEYEjVBQ0Q3")]
    pub wa_message_id: Option<String>,
}

redacted_debug!(TestSendReport { sent, simulated });

/// Why a test did not leave, or may not have.
#[derive(Debug, Error)]
pub enum TestSendError {
    /// No such campaign in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The campaign, or what it needs, is not in a state for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Its number or a file of its template cannot be used. The text is for the caller.
    #[error("{0}")]
    Unready(String),
    /// The store of files did not give a file of its template.
    #[error(transparent)]
    Media(MediaStoreError),
    /// WhatsApp rejected the message or could not be reached.
    #[error("WhatsApp did not accept the message")]
    Gateway(#[source] GatewayError),
    #[error("the outcome is unknown: WhatsApp may have the message")]
    Unknown,
    /// The store failed.
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

/// The use case of tests.
pub struct TestSends {
    store: Arc<dyn TestSendStore>,
    gateway: Arc<dyn WhatsappGateway>,
    files: MessageFiles,
    cipher: Arc<dyn Cipher>,
    report: Arc<dyn ErrorReport>,
    ids: Arc<dyn Ids>,
}

/// A test that may leave, as far as can be told without the month's quota.
struct TestSend {
    inputs: RunInputs,
    recipient: Recipient,
    values: Vec<String>,
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

    /// Sends one message of the campaign to a phone, whatever the campaign's status.
    pub async fn send(&self, tenant: &Tenant, id: CampaignId, phone: &str) -> Result<TestSendReport, TestSendError> {
        let phone = Phone::parse(phone).ok_or_else(|| FieldErrors::one("phone", "is not a phone number"))?;
        let account = tenant.account_id;
        let facts = self.store.facts(account, id, &phone).await?;
        let test_send = prepare(facts.ok_or(TestSendError::NotFound)?, &phone)?;
        let (recipient, values, limit) = (test_send.recipient, test_send.values, test_send.monthly_limit);
        let context = self.run_context(tenant, test_send.inputs).await?;
        // The phone is somebody's, and the log is kept for good.
        let changes = json!({ "simulated": context.credentials.is_none() });
        let audit = tenant.audit(AuditAction::Create, "campaign_test", id);
        let events = [Event::Audit(audit.with_changes(changes))];
        let month = self.store.reserve_message(account, limit, &events).await?;
        let month = month.ok_or(Refusal::MonthUsedUp { limit })?;
        let Some(credentials) = &context.credentials else {
            return Ok(sent(None));
        };
        let message = context.message(SendId(self.ids.next()), &recipient, &values);
        let outcome = self.gateway.send_template(credentials, &message).await;
        self.conclude(tenant, month, outcome).await
    }

    async fn run_context(&self, tenant: &Tenant, inputs: RunInputs) -> Result<RunContext, TestSendError> {
        let credentials = self.credentials(&inputs)?;
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
            // One message has none to keep its distance from.
            send_rate: SendRate::Delay(Duration::ZERO),
            files,
        })
    }

    /// None where it is simulated.
    fn credentials(&self, inputs: &RunInputs) -> Result<Option<WhatsappCredentials>, TestSendError> {
        let Some(profile) = &inputs.profile else {
            return Ok(None);
        };
        let credentials = profile.credentials(self.cipher.as_ref());
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
                // Where this fails the month has one message less: the platform's word is what the caller needs to hear.
                if let Err(error) = self.store.release_message(tenant.account_id, month).await {
                    self.report.swallowed(SideStep::ReturnTestQuota, &error);
                }
                Err(TestSendError::Gateway(refusal))
            }
            (None, SendOutcome::Accepted { message_id, .. }) => Ok(sent(Some(message_id))),
            // It may have left, so it keeps its reservation.
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

/// Decides whether a test may leave. The campaign's status does not count, nor does its audience.
fn prepare(facts: TestSendFacts, phone: &Phone) -> Result<TestSend, Refusal> {
    let run = facts.run;
    let template = approved_template(&run)?.clone();
    let monthly_limit = run.billing.messages_per_month(run.now).ok_or(Refusal::NoActivePlan)?;
    let recipient = match facts.contact {
        Some(contact) if contact.opted_out => return Err(Refusal::OptedOut),
        Some(contact) => contact.recipient,
        None => unknown_recipient(phone),
    };
    Ok(TestSend {
        values: values_or_examples(&run.campaign, &template, &recipient)?,
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
fn unknown_recipient(phone: &Phone) -> Recipient {
    Recipient {
        name: String::new(),
        phone: phone.to_string(),
        email: None,
        attributes: Map::new(),
    }
}

/// The recipient's value of each placeholder. An empty value is replaced by the template's example.
fn values_or_examples(campaign: &Campaign, template: &Template, recipient: &Recipient) -> Result<Vec<String>, Refusal> {
    let mut values = values(campaign, template, recipient);
    for (value, placeholder) in values.iter_mut().zip(template.placeholders()) {
        if value.is_empty() {
            *value = single_spaced(&placeholder.example);
        }
        if value.is_empty() {
            return Err(Refusal::EmptyPlaceholder {
                placeholder: placeholder.key,
            });
        }
    }
    Ok(values)
}
