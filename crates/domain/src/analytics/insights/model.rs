//! What the insights show, field by field as published, and the figures that they are made of.

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use super::super::{Period, day};
use crate::conversations::ConversationStatus;
use crate::shared::{Amount, CampaignId, timestamp};

/// Messages by what became of them last: each is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MessageCounts {
    pub sent: i64,
    pub delivered: i64,
    pub read: i64,
    pub failed: i64,
    /// From outside.
    pub received: i64,
}

impl MessageCounts {
    /// Those that came so far: what was read was also delivered, and all of these were sent.
    pub fn reached(self) -> MessageTotals {
        let delivered = self.delivered + self.read;
        MessageTotals {
            sent: self.sent + delivered,
            delivered,
            read: self.read,
            failed: self.failed,
            received: self.received,
        }
    }
}

impl std::ops::AddAssign for MessageCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.read += other.read;
        self.failed += other.failed;
        self.received += other.received;
    }
}

impl std::ops::SubAssign for MessageCounts {
    fn sub_assign(&mut self, other: Self) {
        self.sent -= other.sent;
        self.delivered -= other.delivered;
        self.read -= other.read;
        self.failed -= other.failed;
        self.received -= other.received;
    }
}

/// Messages by how far they came: a message is counted wherever it passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessageTotals {
    pub sent: i64,
    pub delivered: i64,
    pub read: i64,
    pub failed: i64,
    pub received: i64,
}

impl MessageTotals {
    /// Of a hundred that were sent.
    pub fn delivery_rate(self) -> Amount {
        Amount::from(self.delivered).percent_of(self.sent)
    }

    /// Of a hundred that were delivered.
    pub fn read_rate(self) -> Amount {
        Amount::from(self.read).percent_of(self.delivered)
    }
}

/// How an account stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dashboard {
    pub contacts: ContactsStanding,
    pub messages: MessagesStanding,
    pub conversations: ConversationsStanding,
    pub campaigns: CampaignsStanding,
    pub automations: AutomationsStanding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactsStanding {
    pub total: i64,
    pub new_this_week: i64,
    pub new_this_month: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MessagesStanding {
    pub total_sent: i64,
    pub total_received: i64,
    pub delivery_rate: Amount,
    pub read_rate: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConversationsStanding {
    pub total: i64,
    pub active: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignsStanding {
    pub total: i64,
    pub this_month: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomationsStanding {
    pub active: i64,
}

/// Since when something counts as new; both are days of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newness {
    /// The week's Monday.
    pub week: Date,
    /// The month's first.
    pub month: Date,
}

impl Newness {
    /// As it is at a moment. None where the calendar ends.
    pub fn at(now: OffsetDateTime) -> Option<Self> {
        let today = now.to_offset(time::UtcOffset::UTC).date();
        let days = time::Duration::days(today.weekday().number_days_from_monday().into());
        Some(Self {
            week: today.checked_sub(days)?,
            month: today.replace_day(1).ok()?,
        })
    }
}

/// What the store knows of how an account stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DashboardFigures {
    pub contacts: ContactsStanding,
    /// Of all time.
    pub messages: MessageCounts,
    /// With contacts who are there.
    pub conversations: Vec<(ConversationStatus, i64)>,
    pub campaigns: CampaignsStanding,
    pub automations: AutomationsStanding,
}

/// What became of the messages of a period, by the day on which they were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessagesReport {
    pub period: Period,
    pub daily: Vec<MessagesDay>,
    pub totals: MessageTotals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MessagesDay {
    #[serde(serialize_with = "day")]
    pub date: Date,
    #[serde(flatten)]
    pub totals: MessageTotals,
}

/// The latest campaigns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignsReport {
    pub campaigns: Vec<CampaignReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CampaignReport {
    pub id: CampaignId,
    pub name: String,
    /// None when it has no template.
    pub template_name: Option<String>,
    #[serde(with = "timestamp")]
    pub executed_at: OffsetDateTime,
    pub total_recipients: i64,
    pub delivered: i64,
    pub read: i64,
    pub failed: i64,
    pub delivery_rate: Amount,
    pub read_rate: Amount,
}

/// What the store knows of a campaign that was executed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CampaignFigures {
    pub id: CampaignId,
    pub name: String,
    pub template_name: Option<String>,
    #[serde(with = "timestamp")]
    pub executed_at: OffsetDateTime,
    pub total_recipients: i64,
    pub messages: MessageCounts,
}

impl From<CampaignFigures> for CampaignReport {
    fn from(figures: CampaignFigures) -> Self {
        let totals = figures.messages.reached();
        Self {
            id: figures.id,
            name: figures.name,
            template_name: figures.template_name,
            executed_at: figures.executed_at,
            total_recipients: figures.total_recipients,
            delivered: totals.delivered,
            read: totals.read,
            failed: totals.failed,
            delivery_rate: totals.delivery_rate(),
            read_rate: totals.read_rate(),
        }
    }
}

/// Messages from outside in one hour of one day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatCell {
    /// 0 is Sunday.
    pub day: i64,
    pub hour: i64,
    pub count: i64,
}
