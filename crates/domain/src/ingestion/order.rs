//! A stored order, its attribution, and the merge of a repeated report.

use time::{Duration, OffsetDateTime};

use super::{OrderDraft, OrderItem, OrderStatus};
use crate::shared::{Amount, AutomationId, CampaignId, ContactId, LinkId, OrderId};

/// How long before an order its contact may have received a campaign's message, so that the order is attributed to the
/// campaign.
pub const ATTRIBUTION_WINDOW: Duration = Duration::days(7);

/// What an order is attributed to: the latest explicitly named campaign, automation or link. Without one, the campaign
/// of the contact's last message decides once, when the order is first recorded, so that later messages do not move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The named campaign, else the link's campaign, else that of the last message before the order.
    pub campaign_id: Option<CampaignId>,
    pub automation_id: Option<AutomationId>,
    pub link_id: Option<LinkId>,
}

impl Attribution {
    /// The attribution that an order names.
    pub fn named(draft: &OrderDraft, link: Option<(LinkId, Option<CampaignId>)>) -> Self {
        Self {
            campaign_id: draft.campaign_id.or_else(|| link.and_then(|(_, campaign)| campaign)),
            automation_id: draft.automation_id,
            link_id: link.map(|(link, _)| link),
        }
    }

    /// The attribution of an order that names nothing: the campaign of the contact's last message.
    pub fn from_message(campaign_id: Option<CampaignId>) -> Self {
        Self {
            campaign_id,
            ..Self::default()
        }
    }

    /// Whether the order is attributed to anything.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub id: OrderId,
    pub platform: String,
    pub contact_id: Option<ContactId>,
    pub status: OrderStatus,
    pub total: Amount,
    pub gateway_fee: Amount,
    pub items: Vec<OrderItem>,
    pub attribution: Attribution,
    pub placed_at: OffsetDateTime,
    /// Always set if the order is paid.
    pub paid_at: Option<OffsetDateTime>,
}

impl Order {
    /// Merges a draft into the stored order. An omitted contact, fee, payment time or attribution keeps its stored
    /// value. `attribution` is the one that the draft names; for a new order that names none, it is the last message's.
    /// A named attribution replaces the stored one. A paid order without a payment time was paid when it was placed.
    pub fn merged(
        id: OrderId,
        draft: &OrderDraft,
        contact: Option<ContactId>,
        attribution: Attribution,
        stored: Option<&Self>,
    ) -> Self {
        let paid_at = draft.paid_at.or_else(|| stored.and_then(|stored| stored.paid_at));
        let placed = Some(draft.placed_at).filter(|_| draft.status == OrderStatus::Paid);
        let fee = draft.gateway_fee.or_else(|| stored.map(|stored| stored.gateway_fee));
        Self {
            id: stored.map_or(id, |stored| stored.id),
            platform: draft.platform.clone(),
            contact_id: contact.or_else(|| stored.and_then(|stored| stored.contact_id)),
            status: draft.status,
            total: draft.total,
            gateway_fee: fee.unwrap_or_default(),
            items: draft.items.clone(),
            attribution: stored.map_or(attribution, |stored| {
                if attribution.is_known() {
                    attribution
                } else {
                    stored.attribution
                }
            }),
            placed_at: draft.placed_at,
            paid_at: paid_at.or(placed),
        }
    }

    /// The time at which the revenue was earned, or `None` without revenue.
    pub fn earned_at(&self) -> Option<OffsetDateTime> {
        self.paid_at.filter(|_| self.status == OrderStatus::Paid)
    }

    /// The shop's cost of the items. An item without a cost counts as zero.
    pub fn product_costs(&self) -> Amount {
        let cost = |item: &OrderItem| item.cost.unwrap_or_default() * item.quantity;
        self.items.iter().map(cost).sum()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{Granularity, RollupDelta};
    use super::*;

    fn draft(status: OrderStatus) -> OrderDraft {
        OrderDraft {
            platform: "loja".into(),
            external_id: "1".into(),
            phone: None,
            status,
            total: Amount::from(10),
            items: vec![OrderItem {
                product_id: "p".into(),
                name: "Bolo".into(),
                quantity: Amount::from(2),
                price: Amount::from(5),
                cost: Some(Amount::from(1)),
            }],
            gateway_fee: None,
            campaign_id: None,
            automation_id: None,
            link_code: None,
            placed_at: datetime!(2026-03-01 12:07 UTC),
            paid_at: None,
        }
    }

    fn merged(draft: &OrderDraft, stored: Option<&Order>) -> Order {
        let id = OrderId(Uuid::from_u128(u128::from(stored.is_none())));
        Order::merged(id, draft, None, Attribution::default(), stored)
    }

    #[test]
    fn order_merge_keeps_omitted_fields() {
        let mut first = draft(OrderStatus::Pending);
        first.gateway_fee = Some(Amount::from(1));
        let contact = ContactId(Uuid::from_u128(7));
        let attribution = Attribution {
            campaign_id: Some(CampaignId(Uuid::from_u128(8))),
            ..Attribution::default()
        };
        let stored = Order::merged(OrderId(Uuid::from_u128(1)), &first, Some(contact), attribution, None);
        assert_eq!((stored.paid_at, stored.earned_at()), (None, None));
        let paid = merged(&draft(OrderStatus::Paid), Some(&stored));
        assert_eq!(
            (paid.id, paid.contact_id, paid.attribution),
            (stored.id, Some(contact), attribution)
        );
        assert_eq!(paid.gateway_fee, Amount::from(1));
        assert_eq!(paid.earned_at(), Some(first.placed_at));
        let refunded = merged(&draft(OrderStatus::Refunded), Some(&paid));
        assert_eq!((refunded.paid_at, refunded.earned_at()), (paid.paid_at, None));
        assert_eq!(merged(&draft(OrderStatus::Refunded), Some(&refunded)), refunded);
    }

    #[test]
    fn attribution_prefers_named_campaign_over_the_links() {
        let campaign = |number| CampaignId(Uuid::from_u128(number));
        let link = |campaign| Some((LinkId(Uuid::from_u128(9)), campaign));
        let plain = draft(OrderStatus::Paid);
        assert!(!Attribution::named(&plain, None).is_known());
        assert!(!Attribution::from_message(None).is_known());
        assert_eq!(
            Attribution::from_message(Some(campaign(1))).campaign_id,
            Some(campaign(1))
        );
        let without_campaign = Attribution::named(&plain, link(None));
        assert_eq!(
            (without_campaign.campaign_id, without_campaign.is_known()),
            (None, true)
        );
        assert_eq!(
            Attribution::named(&plain, link(Some(campaign(2)))).campaign_id,
            Some(campaign(2))
        );
        let named = OrderDraft {
            campaign_id: Some(campaign(3)),
            ..plain
        };
        assert_eq!(
            Attribution::named(&named, link(Some(campaign(2)))).campaign_id,
            Some(campaign(3))
        );
    }

    #[test]
    fn order_merge_moves_revenue_to_new_attribution() {
        let paid = draft(OrderStatus::Paid);
        let merge =
            |attribution, stored: Option<&Order>| Order::merged(OrderId(Uuid::nil()), &paid, None, attribution, stored);
        let (campaign, automation) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let by_message = merge(Attribution::from_message(Some(CampaignId(campaign))), None);
        let named = Attribution {
            automation_id: Some(AutomationId(automation)),
            ..Attribution::default()
        };
        let reattributed = merge(named, Some(&by_message));
        assert_eq!(
            reattributed.attribution, named,
            "a named attribution replaces the message's"
        );
        assert_eq!(merge(Attribution::default(), Some(&reattributed)), reattributed);
        let mut delta = RollupDelta::default();
        delta.order(Some(&by_message), &reattributed);
        delta.retain_changes();
        assert!(delta.orders.is_empty() && delta.products.is_empty(), "{delta:?}");
        let day = |kind, id| delta.attributions[&(Granularity::Day, datetime!(2026-03-01 0:00 UTC), (kind, id))].orders;
        assert_eq!((day("campaign", campaign), day("automation", automation)), (-1, 1));
    }

    #[test]
    fn rollup_delta_of_reverted_change_is_empty() {
        let pending = merged(&draft(OrderStatus::Pending), None);
        let paid = merged(&draft(OrderStatus::Paid), Some(&pending));
        let mut delta = RollupDelta::default();
        delta.order(Some(&pending), &paid);
        let key = (Granularity::Quarter, datetime!(2026-03-01 12:00 UTC), "loja".to_owned());
        let sums = delta.orders[&key];
        assert_eq!((sums.placed, sums.pending, sums.paid), (0, -1, 1));
        assert_eq!((sums.revenue, sums.product_costs), (Amount::from(10), Amount::from(2)));
        delta.order(Some(&paid), &pending);
        delta.retain_changes();
        assert_eq!(delta, RollupDelta::default());
    }
}
