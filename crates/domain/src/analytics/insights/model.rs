//! What the insights show, field by field as published, and the totals that they are made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use super::super::{Period, day};
use crate::conversations::ConversationStatus;
use crate::shared::schema::{Day, Timestamp};
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

/// Messages by how far they came: each is counted wherever it passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessageTotals {
    /// How many were sent: accepted by WhatsApp.
    #[schemars(example = 1832)]
    pub sent: i64,
    /// How many of these reached the phone.
    #[schemars(example = 1620)]
    pub delivered: i64,
    /// How many of these were opened.
    #[schemars(example = 980)]
    pub read: i64,
    /// How many failed.
    #[schemars(example = 8)]
    pub failed: i64,
    /// How many came from contacts.
    #[schemars(example = 143)]
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Dashboard {
    /// Its contacts.
    pub contacts: DashboardContacts,
    /// Its messages, of all time.
    pub messages: DashboardMessages,
    /// Its conversations.
    pub conversations: DashboardConversations,
    /// Its campaigns.
    pub campaigns: DashboardCampaigns,
    /// Its automations.
    pub automations: DashboardAutomations,
}

/// Contacts, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardContacts {
    /// How many there are.
    #[schemars(example = 1840)]
    pub total: i64,
    /// How many were created since Monday (UTC).
    #[schemars(example = 31)]
    pub new_this_week: i64,
    /// How many were created since the month's first (UTC).
    #[schemars(example = 112)]
    pub new_this_month: i64,
}

/// Messages, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DashboardMessages {
    /// How many were sent.
    #[schemars(example = 18320)]
    pub total_sent: i64,
    /// How many came from contacts.
    #[schemars(example = 2143)]
    pub total_received: i64,
    /// How many reached the phone, of a hundred that were sent.
    #[schemars(example = 88.43)]
    pub delivery_rate: Amount,
    /// How many were opened, of a hundred that reached the phone.
    #[schemars(example = 60.49)]
    pub read_rate: Amount,
}

/// Conversations, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DashboardConversations {
    /// How many there are.
    #[schemars(example = 320)]
    pub total: i64,
    /// How many are not closed.
    #[schemars(example = 12)]
    pub active: i64,
}

/// Campaigns, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardCampaigns {
    /// How many there are.
    #[schemars(example = 21)]
    pub total: i64,
    /// How many were created since the month's first (UTC).
    #[schemars(example = 3)]
    pub this_month: i64,
}

/// Automations, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardAutomations {
    /// How many run.
    #[schemars(example = 2)]
    pub active: i64,
}

/// Since when something counts as new; both are days of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSince {
    /// The week's Monday.
    pub week: Date,
    /// The month's first.
    pub month: Date,
}

impl NewSince {
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
pub struct DashboardTotals {
    pub contacts: DashboardContacts,
    /// Of all time.
    pub messages: MessageCounts,
    /// With contacts who are there.
    pub conversations: Vec<(ConversationStatus, i64)>,
    pub campaigns: DashboardCampaigns,
    pub automations: DashboardAutomations,
}

/// What became of the messages of a period, by the day on which they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessagesReport {
    /// The period.
    pub period: Period,
    /// Every day of the period, the oldest first.
    pub daily: Vec<MessagesDay>,
    /// The sums of the whole period.
    pub totals: MessageTotals,
}

/// The messages of one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessagesDay {
    /// The day, in the time zone of the report.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "day")]
    pub date: Date,
    /// The numbers of that day.
    #[serde(flatten)]
    pub totals: MessageTotals,
}

/// The latest campaigns that were executed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CampaignsReport {
    /// The campaigns, the latest first; at most 20.
    pub campaigns: Vec<CampaignReport>,
}

/// How a campaign did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CampaignReport {
    /// The campaign's id.
    pub id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    pub name: String,
    /// The name of its template; null when it has none any more.
    #[schemars(example = &"volta_as_aulas")]
    pub template_name: Option<String>,
    /// When its run began.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub executed_at: OffsetDateTime,
    /// How many contacts it went to.
    #[schemars(example = 1840)]
    pub total_recipients: i64,
    /// How many messages reached the phone.
    #[schemars(example = 1620)]
    pub delivered: i64,
    /// How many of these were opened.
    #[schemars(example = 980)]
    pub read: i64,
    /// How many failed.
    #[schemars(example = 8)]
    pub failed: i64,
    /// How many reached the phone, of a hundred that were sent.
    #[schemars(example = 88.43)]
    pub delivery_rate: Amount,
    /// How many were opened, of a hundred that reached the phone.
    #[schemars(example = 60.49)]
    pub read_rate: Amount,
}

/// What the store knows of a campaign that was executed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CampaignTotals {
    pub id: CampaignId,
    pub name: String,
    pub template_name: Option<String>,
    #[serde(with = "timestamp")]
    pub executed_at: OffsetDateTime,
    pub total_recipients: i64,
    pub messages: MessageCounts,
}

impl From<CampaignTotals> for CampaignReport {
    fn from(totals: CampaignTotals) -> Self {
        let reached = totals.messages.reached();
        Self {
            id: totals.id,
            name: totals.name,
            template_name: totals.template_name,
            executed_at: totals.executed_at,
            total_recipients: totals.total_recipients,
            delivered: reached.delivered,
            read: reached.read,
            failed: reached.failed,
            delivery_rate: reached.delivery_rate(),
            read_rate: reached.read_rate(),
        }
    }
}

/// How many messages came from contacts in one hour of one day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeatCell {
    /// The day of the week, 0 for Sunday to 6 for Saturday.
    #[schemars(range(min = 0, max = 6), example = 2)]
    pub day: i64,
    /// The hour of the day.
    #[schemars(range(min = 0, max = 23), example = 19)]
    pub hour: i64,
    /// How many messages came.
    #[schemars(example = 31)]
    pub count: i64,
}
