//! The published insights and the totals that they are computed from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use super::super::{Period, day};
use crate::conversations::ConversationStatus;
use crate::shared::schema::{Day, Timestamp};
use crate::shared::{Amount, CampaignId, timestamp};

/// Message counts by current status. Each message counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MessageCounts {
    pub sent: i64,
    pub delivered: i64,
    pub read: i64,
    pub failed: i64,
    /// Messages from contacts.
    pub received: i64,
}

impl MessageCounts {
    /// Converts the counts to cumulative totals: a read message was also delivered, and both were sent.
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

/// Message totals. They are cumulative: a read message also counts as delivered and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessageTotals {
    /// The number of messages that WhatsApp accepted.
    #[schemars(example = 1832)]
    pub sent: i64,
    /// The number of messages that reached the phone.
    #[schemars(example = 1620)]
    pub delivered: i64,
    /// The number of messages that were read.
    #[schemars(example = 980)]
    pub read: i64,
    /// The number of failed messages.
    #[schemars(example = 8)]
    pub failed: i64,
    /// The number of messages from contacts.
    #[schemars(example = 143)]
    pub received: i64,
}

impl MessageTotals {
    /// Delivered messages as a percentage of sent messages.
    pub fn delivery_rate(self) -> Amount {
        Amount::from(self.delivered).percent_of(self.sent)
    }

    /// Read messages as a percentage of delivered messages.
    pub fn read_rate(self) -> Amount {
        Amount::from(self.read).percent_of(self.delivered)
    }
}

/// The key totals of an account.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Dashboard {
    /// The account's contacts.
    pub contacts: DashboardContacts,
    /// The account's messages of all time.
    pub messages: DashboardMessages,
    /// The account's conversations.
    pub conversations: DashboardConversations,
    /// The account's campaigns.
    pub campaigns: DashboardCampaigns,
    /// The account's automations.
    pub automations: DashboardAutomations,
}

/// The numbers of contacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardContacts {
    /// The number of contacts.
    #[schemars(example = 1840)]
    pub total: i64,
    /// The number of contacts created since Monday (UTC).
    #[schemars(example = 31)]
    pub new_this_week: i64,
    /// The number of contacts created since the first day of the month (UTC).
    #[schemars(example = 112)]
    pub new_this_month: i64,
}

/// The numbers of messages and their rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DashboardMessages {
    /// The number of sent messages.
    #[schemars(example = 18320)]
    pub total_sent: i64,
    /// The number of messages from contacts.
    #[schemars(example = 2143)]
    pub total_received: i64,
    /// Delivered messages as a percentage of sent messages.
    #[schemars(example = 88.43)]
    pub delivery_rate: Amount,
    /// Read messages as a percentage of delivered messages.
    #[schemars(example = 60.49)]
    pub read_rate: Amount,
}

/// The numbers of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DashboardConversations {
    /// The number of conversations.
    #[schemars(example = 320)]
    pub total: i64,
    /// The number of conversations that are not closed.
    #[schemars(example = 12)]
    pub active: i64,
}

/// The numbers of campaigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardCampaigns {
    /// The number of campaigns.
    #[schemars(example = 21)]
    pub total: i64,
    /// The number of campaigns created since the first day of the month (UTC).
    #[schemars(example = 3)]
    pub this_month: i64,
}

/// The number of automations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DashboardAutomations {
    /// The number of active automations.
    #[schemars(example = 2)]
    pub active: i64,
}

/// The UTC days since which contacts and campaigns count as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSince {
    /// The Monday of the current week.
    pub week: Date,
    /// The first day of the current month.
    pub month: Date,
}

impl NewSince {
    /// Returns the days for `now`, or `None` outside the calendar's range.
    pub fn at(now: OffsetDateTime) -> Option<Self> {
        let today = now.to_offset(time::UtcOffset::UTC).date();
        let days = time::Duration::days(today.weekday().number_days_from_monday().into());
        Some(Self {
            week: today.checked_sub(days)?,
            month: today.replace_day(1).ok()?,
        })
    }
}

/// The stored totals of the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DashboardTotals {
    pub contacts: DashboardContacts,
    /// Messages of all time.
    pub messages: MessageCounts,
    /// Conversations with contacts that are not deleted, by status.
    pub conversations: Vec<(ConversationStatus, i64)>,
    pub campaigns: DashboardCampaigns,
    pub automations: DashboardAutomations,
}

/// The messages of a period by creation day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessagesReport {
    /// The period of the report.
    pub period: Period,
    /// Every day of the period, the oldest first.
    pub daily: Vec<MessagesDay>,
    /// The totals of the whole period.
    pub totals: MessageTotals,
}

/// The messages of one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MessagesDay {
    /// The day, in the time zone of the report.
    #[schemars(with = "Day")]
    #[serde(serialize_with = "day")]
    pub date: Date,
    /// The totals of the day.
    #[serde(flatten)]
    pub totals: MessageTotals,
}

/// The latest executed campaigns.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CampaignsReport {
    /// The campaigns, the latest first; at most 20.
    pub campaigns: Vec<CampaignReport>,
}

/// The results of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CampaignReport {
    /// The campaign's id.
    pub id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    pub name: String,
    /// The name of the campaign's template; null if it has none any more.
    #[schemars(example = &"volta_as_aulas")]
    pub template_name: Option<String>,
    /// When the campaign's run started.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub executed_at: OffsetDateTime,
    /// The number of recipients.
    #[schemars(example = 1840)]
    pub total_recipients: i64,
    /// The number of messages that reached the phone.
    #[schemars(example = 1620)]
    pub delivered: i64,
    /// The number of messages that were read.
    #[schemars(example = 980)]
    pub read: i64,
    /// The number of failed messages.
    #[schemars(example = 8)]
    pub failed: i64,
    /// Delivered messages as a percentage of sent messages.
    #[schemars(example = 88.43)]
    pub delivery_rate: Amount,
    /// Read messages as a percentage of delivered messages.
    #[schemars(example = 60.49)]
    pub read_rate: Amount,
}

/// The stored totals of an executed campaign.
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

/// The number of messages from contacts in one hour of one day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeatCell {
    /// The day of the week, 0 for Sunday to 6 for Saturday.
    #[schemars(range(min = 0, max = 6), example = 2)]
    pub day: i64,
    /// The hour of the day.
    #[schemars(range(min = 0, max = 23), example = 19)]
    pub hour: i64,
    /// The number of messages.
    #[schemars(example = 31)]
    pub count: i64,
}
