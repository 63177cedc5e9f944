//! The health of a number.

use time::{Duration, OffsetDateTime};

use super::{CanSend, HealthEntity, HealthReport, NumberActivity, NumberFacts, Verification};
use crate::whatsapp::Profile;

/// How long WhatsApp's answer about a profile's health is used.
const KEPT_FOR: Duration = Duration::seconds(60);

/// The service messages of a number in a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceMessages {
    /// The current month in UTC.
    pub month: String,
    /// The replies that WhatsApp accepted in this month.
    pub used: i64,
}

/// Whether a number can send, and what it did last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberHealth {
    /// When WhatsApp gave this answer. Null if it never did.
    pub asked_at: Option<OffsetDateTime>,
    /// Whether WhatsApp could not be asked now, so that the answer is an earlier one or missing.
    pub stale: bool,
    /// Whether WhatsApp lets the number send: the worst of the entities.
    pub can_send: CanSend,
    /// The entities on which sending depends.
    pub entities: Vec<HealthEntity>,
    /// The verification of the number.
    pub verification: Verification,
    /// What WhatsApp says about the number.
    pub number: NumberFacts,
    /// When the number last received a message.
    pub last_inbound_at: Option<OffsetDateTime>,
    /// When WhatsApp last called back about the number.
    pub last_callback_at: Option<OffsetDateTime>,
    /// When WhatsApp last accepted a message of the number.
    pub last_accepted_at: Option<OffsetDateTime>,
    /// The service messages of the current month.
    pub service_messages: ServiceMessages,
}

impl NumberActivity {
    /// Whether WhatsApp's last answer about the health is recent enough.
    pub(super) fn is_fresh(&self) -> bool {
        let asked_at = self.health.as_ref().map(|(_, asked_at)| *asked_at);
        asked_at.is_some_and(|asked_at| self.now - asked_at < KEPT_FOR)
    }
}

impl NumberHealth {
    /// `asked`: WhatsApp's present answer, if it was asked and answered.
    pub(super) fn new(profile: Profile, activity: NumberActivity, asked: Option<HealthReport>) -> Self {
        let stale = asked.is_none() && !activity.is_fresh();
        let now = activity.now;
        let answer = asked.map(|report| (report, now)).or(activity.health);
        let asked_at = answer.as_ref().map(|(_, asked_at)| *asked_at);
        let (can_send, entities) = match answer {
            Some((HealthReport { can_send, entities }, _)) => (can_send, entities),
            None => (CanSend::Unknown, vec![]),
        };
        let month = format!("{:04}-{:02}", now.year(), u8::from(now.month()));
        Self {
            asked_at,
            stale,
            can_send,
            entities,
            verification: profile.verification,
            number: profile.number,
            last_inbound_at: activity.last_inbound_at,
            last_callback_at: activity.last_callback_at,
            last_accepted_at: activity.last_accepted_at,
            service_messages: ServiceMessages {
                month,
                used: activity.service_messages,
            },
        }
    }
}
