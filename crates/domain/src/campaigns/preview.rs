//! The preview of a run: its recipients, its first messages and its failed preconditions. Pure: the store reads the
//! facts, and nothing is written.

use schemars::JsonSchema;
use serde::Serialize;

use super::run_context::values;
use super::{CampaignRefusal, Command, Recipient, RetryReport, RunFacts, failed_preconditions, transition};
use crate::costs::{CostEstimate, CostFacts, estimate};
use crate::shared::{ContactId, redacted_debug};
use crate::templates::Rendered;

/// The facts of a preview, from one snapshot of the database.
#[derive(Clone, Debug, PartialEq)]
pub struct PreviewFacts {
    pub facts: RunFacts,
    /// The contacts that a run would freeze.
    pub recipients_by: RecipientsBy,
    pub unreachable: Unreachable,
    /// The first of these contacts.
    pub first: Vec<PreviewRecipient>,
    /// The name of the campaign's segment, if it was deleted.
    pub deleted_segment: Option<String>,
    /// The placeholders that are empty for at least one contact of the audience.
    pub empty: Vec<String>,
    /// Used and reserved messages of the month.
    pub used: i64,
    /// The report of a retry without a request body.
    pub retry: RetryReport,
    /// The recipients by country, and the rates there.
    pub costs: CostFacts,
}

/// The number of recipients by the kind of their address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecipientsBy {
    /// The number of contacts that are written to by phone number.
    #[schemars(example = 1800)]
    pub phone: i64,
    /// The number of contacts that are written to by WhatsApp's user id.
    #[schemars(example = 40)]
    pub user_id: i64,
}

impl RecipientsBy {
    pub fn total(self) -> i64 {
        self.phone + self.user_id
    }
}

/// The number of contacts of the audience that the run leaves out, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unreachable {
    /// The number of contacts without an address that the campaign reaches.
    #[schemars(example = 12)]
    pub no_address: i64,
    /// The number of contacts that opted out.
    #[schemars(example = 31)]
    pub opted_out: i64,
    /// The number of contacts with a user id alone, to which WhatsApp sends no authentication template.
    #[schemars(example = 0)]
    pub authentication_needs_phone: i64,
}

/// A contact of the audience.
#[derive(Clone, Debug, PartialEq)]
pub struct PreviewRecipient {
    pub id: ContactId,
    pub recipient: Recipient,
}

/// The preview of a campaign's run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Preview {
    /// The number of contacts that the run would send to.
    #[schemars(example = 1840)]
    pub recipients: i64,
    /// The recipients by the kind of their address. The sum is `recipients`.
    pub recipients_by: RecipientsBy,
    /// The contacts of the audience that the run would leave out.
    pub unreachable: Unreachable,
    /// The messages to the first three contacts; empty without a template.
    pub messages: Vec<PreviewMessage>,
    /// All reasons why the run would be refused; empty when there is none.
    pub refusals: Vec<PreviewRefusal>,
    /// The failed sends that `retry-failed` without a body would retry, and those that it would leave out; null unless
    /// the campaign is completed or partial.
    pub retry: Option<RetryReport>,
    /// The expected cost of the run; null without a rate card or without a template.
    pub cost: Option<CostEstimate>,
}

/// A message as one contact would receive it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PreviewMessage {
    /// The contact that would receive the message.
    pub contact: PreviewContact,
    /// The rendered message.
    #[serde(flatten)]
    pub rendered: Rendered,
}

/// The contact that would receive a message.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PreviewContact {
    /// The contact's id.
    pub id: ContactId,
    /// The contact's name.
    #[schemars(example = &"Ana Lima")]
    pub name: String,
    /// The contact's phone number in E.164 form; null if the contact has none.
    #[schemars(example = &"+5511961234567")]
    pub phone: Option<String>,
}

redacted_debug!(PreviewContact {});

/// A reason why a run would be refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PreviewRefusal {
    /// The reason as a fixed value: `status`, `no_template`, `template_not_approved`, `template_not_sendable`,
    /// `segment_deleted`, `no_recipients`, `placeholder_empty`, `number_unverified`, `no_active_plan`, `no_rate` or
    /// `quota_exceeded`.
    #[schemars(example = &"quota_exceeded")]
    pub reason: &'static str,
    /// The error message that `execute` would return.
    #[schemars(example = &"the run needs 1840 messages, and 250 of this month's 250 are left")]
    pub message: String,
}

pub fn preview(preview_facts: PreviewFacts) -> Preview {
    let refusals = refusals(&preview_facts).into_iter().map(|refusal| PreviewRefusal {
        reason: refusal.reason(),
        message: refusal.to_string(),
    });
    let refusals = refusals.collect();
    let facts = preview_facts.facts;
    let budget_currency = facts.campaign.budget.as_ref().map(|budget| budget.currency.as_str());
    let category = facts.template.as_ref().map(|template| template.category);
    let cost = category.and_then(|category| estimate(&preview_facts.costs, category, budget_currency, facts.now));
    let can_retry = transition(facts.campaign.status, Command::Retry).is_ok();
    let messages = facts.template.iter().flat_map(|template| {
        preview_facts
            .first
            .iter()
            .map(|PreviewRecipient { id, recipient }| PreviewMessage {
                contact: PreviewContact {
                    id: *id,
                    name: recipient.name.clone(),
                    phone: Some(recipient.phone.clone()).filter(|phone| !phone.is_empty()),
                },
                rendered: template.rendered(&values(&facts.campaign, template, recipient)),
            })
    });
    Preview {
        recipients: preview_facts.recipients_by.total(),
        recipients_by: preview_facts.recipients_by,
        unreachable: preview_facts.unreachable,
        messages: messages.collect(),
        refusals,
        retry: can_retry.then_some(preview_facts.retry),
        cost,
    }
}

/// All refusals of a run, in the order in which a start would report them.
fn refusals(preview_facts: &PreviewFacts) -> Vec<CampaignRefusal> {
    let facts = &preview_facts.facts;
    let mut found = failed_preconditions(facts, Command::Start);
    if let Some(segment) = preview_facts.deleted_segment.clone() {
        found.push(CampaignRefusal::SegmentDeleted { segment });
    }
    if preview_facts.recipients_by.total() == 0 {
        found.push(CampaignRefusal::NoRecipients);
    }
    for placeholder in preview_facts.empty.iter().cloned() {
        let empty = CampaignRefusal::EmptyPlaceholder { placeholder };
        // `failed_preconditions` already lists a placeholder that is empty for every contact.
        if !found.contains(&empty) {
            found.push(empty);
        }
    }
    found.extend(no_rate(preview_facts));
    if let Some(limit) = facts.billing.messages_per_month(facts.now) {
        let (left, wanted) = (
            limit.saturating_sub(preview_facts.used).max(0),
            preview_facts.recipients_by.total(),
        );
        if wanted > left {
            found.push(CampaignRefusal::QuotaExceeded { limit, left, wanted });
        }
    }
    found
}

/// The refusal of a run whose budget cannot be applied to every recipient. A simulated run costs nothing.
pub(super) fn no_rate(preview_facts: &PreviewFacts) -> Option<CampaignRefusal> {
    let facts = &preview_facts.facts;
    let budget = facts.campaign.budget.as_ref().filter(|_| facts.profile_id.is_some())?;
    let category = facts.template.as_ref()?.category;
    budget.check_rates(&preview_facts.costs, category, facts.now).err()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use uuid::Uuid;

    use super::super::service::tests::{NOW, campaign};
    use super::super::{Campaign, CampaignStatus, Variables};
    use super::*;
    use crate::billing::PlanEntitlement;
    use crate::messaging::MetaStatus;
    use crate::templates::Template;
    use crate::templates::tests::approved_template;

    fn contact(number: u128, name: &str) -> PreviewRecipient {
        PreviewRecipient {
            id: ContactId(Uuid::from_u128(number)),
            recipient: Recipient {
                name: name.into(),
                phone: format!("+55119{number:08}"),
                user_id: None,
                email: None,
                attributes: Map::new(),
            },
        }
    }

    fn preview_facts() -> PreviewFacts {
        let template = approved_template("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
        let campaign = Campaign {
            template_id: Some(template.id),
            ..campaign(CampaignStatus::Draft)
        };
        PreviewFacts {
            facts: RunFacts {
                campaign,
                template: Some(template),
                content_frozen: false,
                profile_id: None,
                number_unverified: false,
                billing: PlanEntitlement {
                    plan: "free".into(),
                    granted: None,
                    subscriptions: vec![],
                },
                late_policy: None,
                now: NOW,
            },
            recipients_by: RecipientsBy { phone: 3, user_id: 1 },
            unreachable: Unreachable::default(),
            first: vec![contact(1, "Bia Lima"), contact(2, "Caio")],
            deleted_segment: None,
            empty: vec![],
            used: 0,
            retry: RetryReport::default(),
            costs: CostFacts::default(),
        }
    }

    fn reasons(preview_facts: PreviewFacts) -> Vec<&'static str> {
        preview(preview_facts)
            .refusals
            .iter()
            .map(|refusal| refusal.reason)
            .collect()
    }

    #[test]
    fn preview_renders_the_messages_of_the_first_contacts() {
        let shown = preview(preview_facts());
        assert_eq!((shown.recipients, &shown.refusals[..]), (4, &[][..]));
        let bodies: Vec<_> = shown
            .messages
            .iter()
            .map(|m| m.rendered.body.as_deref().unwrap())
            .collect();
        assert_eq!(bodies, ["Oi Bia, use PROMO10.", "Oi Caio, use PROMO10."]);
        let published = serde_json::to_value(&shown.messages[1]).unwrap();
        let expected = json!({
            "contact": { "id": "00000000-0000-0000-0000-000000000002", "name": "Caio", "phone": "+5511900000002" },
            "header_type": "none", "header": null, "header_media_url": null,
            "header_location": null, "limited_time_offer": null, "body": "Oi Caio, use PROMO10.", "footer": null, "buttons": [], "cards": [] });
        assert_eq!(published, expected);
    }

    #[test]
    fn preview_without_a_template_has_no_messages() {
        let mut bare = preview_facts();
        bare.facts.template = None;
        let shown = preview(bare);
        assert_eq!((shown.recipients, shown.messages.len()), (4, 0));
        assert_eq!(shown.refusals[0].reason, "no_template");
        // A template that is not approved yet has a preview.
        let mut pending = preview_facts();
        pending.facts.template = pending.facts.template.map(|template| Template {
            meta_status: MetaStatus::Pending,
            ..template
        });
        let shown = preview(pending);
        assert_eq!((shown.messages.len(), shown.refusals.len()), (2, 1));
    }

    #[test]
    fn preview_lists_each_refusal_once_with_its_message() {
        let mut worst = preview_facts();
        worst.facts.campaign.status = CampaignStatus::Sent;
        worst.facts.campaign.variables = Some(Variables([("2".to_owned(), " ".to_owned())].into()));
        worst.facts.template = worst.facts.template.map(|template| Template {
            meta_status: MetaStatus::Paused,
            ..template
        });
        worst.deleted_segment = Some("Frios".into());
        worst.empty = vec!["1".into(), "2".into()];
        worst.used = 249;
        let all = [
            "status",
            "template_not_approved",
            "placeholder_empty",
            "segment_deleted",
            "placeholder_empty",
            "quota_exceeded",
        ];
        assert_eq!(reasons(worst.clone()), all);
        let shown = preview(worst.clone());
        let message = |at: usize| shown.refusals[at].message.as_str();
        assert_eq!(message(0), "a campaign in status sent cannot be sent");
        assert!(
            message(2).contains("{{2}}") && message(4).contains("{{1}}"),
            "{shown:?}"
        );
        assert!(message(3).contains("\"Frios\""));
        assert_eq!(
            message(5),
            "the run needs 4 messages, and 1 of this month's 250 are left"
        );
        worst.facts.billing.plan = "gold".into();
        worst.recipients_by = RecipientsBy::default();
        worst.empty = vec![];
        let without_recipients = [
            "status",
            "template_not_approved",
            "placeholder_empty",
            "no_active_plan",
            "segment_deleted",
        ];
        assert_eq!(reasons(worst)[..5], without_recipients);
    }

    #[test]
    fn preview_has_a_retry_only_if_one_may_start() {
        let retry = RetryReport {
            tried: 2,
            left_out: vec![],
        };
        for (status, shown) in [
            (CampaignStatus::Completed, Some(retry.clone())),
            (CampaignStatus::Partial, Some(retry.clone())),
            (CampaignStatus::Draft, None),
            (CampaignStatus::Sending, None),
            (CampaignStatus::Cancelled, None),
        ] {
            let mut preview_facts = PreviewFacts {
                retry: retry.clone(),
                ..preview_facts()
            };
            preview_facts.facts.campaign.status = status;
            assert_eq!(preview(preview_facts).retry, shown, "{status}");
        }
    }

    #[test]
    fn preview_distinguishes_no_recipients_from_a_full_quota() {
        let without_recipients = PreviewFacts {
            recipients_by: RecipientsBy::default(),
            first: vec![],
            used: 250,
            ..preview_facts()
        };
        assert_eq!(reasons(without_recipients), ["no_recipients"]);
        let with_usage = |used| PreviewFacts {
            used,
            ..preview_facts()
        };
        assert_eq!(reasons(with_usage(246)), Vec::<&str>::new());
        assert_eq!(reasons(with_usage(247)), ["quota_exceeded"]);
        assert!(
            preview(with_usage(400)).refusals[0]
                .message
                .contains("0 of this month's 250")
        );
    }
}
