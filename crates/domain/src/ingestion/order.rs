//! An order as it is kept, and what becomes of it when it is told again.

use time::OffsetDateTime;

use super::{OrderDraft, OrderItem, OrderStatus};
use crate::shared::{Amount, AutomationId, CampaignId, ContactId, LinkId, OrderId};

/// What an order is owed to. Decided when the order is first recorded, for good: it neither moves with messages that
/// are sent later, nor with who tells of the order next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// A campaign: named, or the link's, or that of the last message before the order.
    pub campaign_id: Option<CampaignId>,
    /// A named automation.
    pub automation_id: Option<AutomationId>,
    /// A named link.
    pub link_id: Option<LinkId>,
}

impl Origin {
    /// What an order names; else the campaign whose message its contact received last.
    pub fn new(
        draft: &OrderDraft,
        link: Option<(LinkId, Option<CampaignId>)>,
        last_message: Option<CampaignId>,
    ) -> Self {
        let named = Self {
            campaign_id: draft.campaign_id.or_else(|| link.and_then(|(_, campaign)| campaign)),
            automation_id: draft.automation_id,
            link_id: link.map(|(link, _)| link),
        };
        if named.is_known() {
            return named;
        }
        Self {
            campaign_id: last_message,
            ..named
        }
    }

    /// Whether the order is owed to anything.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }
}

/// An order.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub id: OrderId,
    pub platform: String,
    pub contact_id: Option<ContactId>,
    pub status: OrderStatus,
    pub total: Amount,
    pub gateway_fee: Amount,
    pub items: Vec<OrderItem>,
    pub origin: Origin,
    pub placed_at: OffsetDateTime,
    /// Never none when it is paid.
    pub paid_at: Option<OffsetDateTime>,
}

impl Order {
    /// The order after it was told. What the telling leaves out (contact, fee, moment of payment) stays as it is
    /// known; what an order is owed to is never decided again. A paid order whose moment of payment nobody told was
    /// paid when it was placed.
    pub fn told(
        id: OrderId,
        draft: &OrderDraft,
        contact: Option<ContactId>,
        origin: Origin,
        known: Option<&Self>,
    ) -> Self {
        let paid_at = draft.paid_at.or_else(|| known.and_then(|known| known.paid_at));
        let placed = Some(draft.placed_at).filter(|_| draft.status == OrderStatus::Paid);
        let fee = draft.gateway_fee.or_else(|| known.map(|known| known.gateway_fee));
        Self {
            id: known.map_or(id, |known| known.id),
            platform: draft.platform.clone(),
            contact_id: contact.or_else(|| known.and_then(|known| known.contact_id)),
            status: draft.status,
            total: draft.total,
            gateway_fee: fee.unwrap_or_default(),
            items: draft.items.clone(),
            origin: known.map_or(origin, |known| known.origin),
            placed_at: draft.placed_at,
            paid_at: paid_at.or(placed),
        }
    }

    /// The moment that its revenue belongs to; none while there is no revenue.
    pub fn earned_at(&self) -> Option<OffsetDateTime> {
        self.paid_at.filter(|_| self.status == OrderStatus::Paid)
    }

    /// What its products cost, as far as it was told.
    pub fn product_costs(&self) -> Amount {
        let cost = |item: &OrderItem| item.cost.unwrap_or_default() * item.quantity;
        self.items.iter().map(cost).sum()
    }
}
