//! The use cases of insights: converts totals to reports.

use std::sync::Arc;

use super::super::{AnalyticsError, Period, ReportPeriod, Window};
use super::{
    CampaignsReport, Dashboard, DashboardConversations, DashboardMessages, DashboardTotals, HeatCell, InsightStore,
    MessageCounts, MessagesDay, MessagesReport, NewSince,
};
use crate::conversations::ConversationStatus;
use crate::shared::{Clock, FieldErrors, Tenant};

/// The most campaigns of a report.
const MAX_CAMPAIGNS: i64 = 20;

pub struct Insights {
    store: Arc<dyn InsightStore>,
    clock: Arc<dyn Clock>,
}

impl Insights {
    pub fn new(store: Arc<dyn InsightStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    fn window(&self, report_period: &ReportPeriod) -> Result<Window, FieldErrors> {
        let window = Window::new(report_period.period, &report_period.zone, self.clock.now());
        window.ok_or_else(|| FieldErrors::one("tz", "has no calendar days for this period"))
    }

    /// Reports the key totals of the account.
    pub async fn dashboard(&self, tenant: &Tenant) -> Result<Dashboard, AnalyticsError> {
        let new_since = NewSince::at(self.clock.now());
        let new_since = new_since.ok_or_else(|| FieldErrors::one("now", "is outside the calendar's range"))?;
        Ok(dashboard(&self.store.dashboard(tenant.account_id, &new_since).await?))
    }

    /// Reports the messages of a period.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<MessagesReport, AnalyticsError> {
        let window = self.window(report_period)?;
        let days = self.store.messages(tenant.account_id, &window).await?;
        Ok(messages(report_period.period, &window, &days))
    }

    /// Reports the latest campaigns of a period of 30 or 90 days.
    pub async fn campaigns(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<CampaignsReport, AnalyticsError> {
        if report_period.period == Period::Week {
            return Err(FieldErrors::one("period", "must be 30d or 90d").into());
        }
        let window = self.window(report_period)?;
        let campaigns = self.store.campaigns(tenant.account_id, &window, MAX_CAMPAIGNS).await?;
        let campaigns = campaigns.into_iter().map(Into::into).collect();
        Ok(CampaignsReport { campaigns })
    }

    /// Reports when contacts send messages to the account.
    pub async fn heat_map(
        &self,
        tenant: &Tenant,
        report_period: &ReportPeriod,
    ) -> Result<Vec<HeatCell>, AnalyticsError> {
        let offset_intervals = report_period.zone.offset_intervals(&self.window(report_period)?);
        Ok(self.store.heat_map(tenant.account_id, &offset_intervals).await?)
    }
}

fn dashboard(totals: &DashboardTotals) -> Dashboard {
    let reached = totals.messages.reached();
    let conversations = |is_counted: fn(ConversationStatus) -> bool| {
        let counted = totals.conversations.iter().filter(|(status, _)| is_counted(*status));
        counted.map(|(_, count)| count).sum()
    };
    Dashboard {
        contacts: totals.contacts,
        messages: DashboardMessages {
            total_sent: reached.sent,
            total_received: reached.received,
            delivery_rate: reached.delivery_rate(),
            read_rate: reached.read_rate(),
        },
        conversations: DashboardConversations {
            total: conversations(|_| true),
            active: conversations(|status| status != ConversationStatus::Closed),
        },
        campaigns: totals.campaigns,
        automations: totals.automations,
    }
}

fn messages(period: Period, window: &Window, days: &[MessageCounts]) -> MessagesReport {
    let mut sum = MessageCounts::default();
    let daily = window.dates.iter().zip(days).map(|(&date, &counts)| {
        sum += counts;
        MessagesDay {
            date,
            totals: counts.reached(),
        }
    });
    let daily = daily.collect();
    MessagesReport {
        period,
        daily,
        totals: sum.reached(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::{date, datetime};
    use uuid::Uuid;

    use super::super::super::Zone;
    use super::super::{DashboardContacts, MockInsightStore};
    use super::*;
    use crate::shared::{AccountId, MockClock, Role, UserId};

    const COUNTS: MessageCounts = MessageCounts {
        sent: 1,
        delivered: 2,
        read: 3,
        failed: 4,
        received: 5,
    };

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::nil()), Role::Viewer)
    }

    fn insights(store: MockInsightStore) -> Insights {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        Insights::new(Arc::new(store), Arc::new(clock))
    }

    fn report_period(period: Period) -> ReportPeriod {
        ReportPeriod {
            period,
            zone: Zone::UTC,
        }
    }

    #[tokio::test]
    async fn message_totals_are_cumulative() {
        let mut store = MockInsightStore::new();
        store
            .expect_messages()
            .returning(|_, window| Ok(vec![COUNTS; window.dates.len()]));
        let report = insights(store)
            .messages(&tenant(), &report_period(Period::Week))
            .await
            .unwrap();
        let report = json!(report);
        assert_eq!(
            report["daily"][6],
            json!({ "date": "2026-03-01", "sent": 6, "delivered": 5, "read": 3, "failed": 4, "received": 5 })
        );
        assert_eq!(report["daily"].as_array().unwrap().len(), 7);
        assert_eq!(
            report["totals"],
            json!({ "sent": 42, "delivered": 35, "read": 21, "failed": 28, "received": 35 })
        );
        assert_eq!(report["period"], "7d");
    }

    #[tokio::test]
    async fn dashboard_has_rates_and_active_conversations() {
        let mut store = MockInsightStore::new();
        store.expect_dashboard().returning(|_, new_since| {
            assert_eq!(
                (new_since.week, new_since.month),
                (date!(2026 - 02 - 23), date!(2026 - 03 - 01))
            );
            Ok(DashboardTotals {
                contacts: DashboardContacts {
                    total: 9,
                    new_this_week: 2,
                    new_this_month: 3,
                },
                messages: COUNTS,
                conversations: vec![(ConversationStatus::Closed, 4), (ConversationStatus::Open, 3)],
                ..DashboardTotals::default()
            })
        });
        let report = json!(insights(store).dashboard(&tenant()).await.unwrap());
        assert_eq!(
            report,
            json!({
                "contacts": { "total": 9, "new_this_week": 2, "new_this_month": 3 },
                "messages": { "total_sent": 6, "total_received": 5, "delivery_rate": 83.33, "read_rate": 60 },
                "conversations": { "total": 7, "active": 3 },
                "campaigns": { "total": 0, "this_month": 0 },
                "automations": { "active": 0 },
            })
        );
    }

    #[test]
    fn dashboard_without_messages_has_zero_rates() {
        let report = dashboard(&DashboardTotals::default()).messages;
        assert!(report.delivery_rate.is_zero() && report.read_rate.is_zero());
    }

    #[tokio::test]
    async fn campaign_report_rejects_a_week() {
        let refused = insights(MockInsightStore::new())
            .campaigns(&tenant(), &report_period(Period::Week))
            .await;
        assert!(matches!(refused, Err(AnalyticsError::Invalid(errors)) if errors.0.contains_key("period")));
    }

    #[test]
    fn new_since_starts_on_monday_and_first_of_month() {
        for (now, week, month) in [
            (
                datetime!(2026-03-01 23:59 UTC),
                date!(2026 - 02 - 23),
                date!(2026 - 03 - 01),
            ),
            (
                datetime!(2026-03-02 0:00 UTC),
                date!(2026 - 03 - 02),
                date!(2026 - 03 - 01),
            ),
            (
                datetime!(2026-01-01 0:00 +3),
                date!(2025 - 12 - 29),
                date!(2025 - 12 - 01),
            ),
        ] {
            assert_eq!(NewSince::at(now), Some(NewSince { week, month }));
        }
    }
}
