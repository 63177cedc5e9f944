//! Rollup deltas of orders and carts. A change subtracts the old row's sums and adds the new row's, so that the rollups
//! are exact after any sequence of changes.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime, UtcOffset};
use uuid::Uuid;

use super::{Cart, CartStatus, Order, OrderStatus};
use crate::shared::{Amount, string_enum};

string_enum! {
    /// What an order can be attributed to.
    AttributionKind {
        /// A campaign.
        Campaign = "campaign",
        /// An automation.
        Automation = "automation",
        /// A link.
        Link = "link",
    }
}

/// The length of a rollup's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granularity {
    /// 15 minutes: every time zone's days consist of whole quarters.
    Quarter,
    /// Three hours: days of time zones such as Brasília's (UTC-3) consist of these.
    ThreeHours,
    /// A UTC day.
    Day,
    /// Seven UTC days that start on a Thursday, because 1970-01-01 was one.
    Week,
}

impl Granularity {
    /// The granularities of totals.
    pub const TOTALS: [Self; 2] = [Self::Quarter, Self::Day];

    /// The granularities of daily series.
    pub const SERIES: [Self; 3] = [Self::Quarter, Self::ThreeHours, Self::Day];

    /// The granularities of totals with many keys, whose daily rows would be too many for a long period.
    pub const MANY: [Self; 3] = [Self::Quarter, Self::Day, Self::Week];

    /// The stored value: the bucket's length in minutes.
    pub fn minutes(self) -> i32 {
        match self {
            Self::Quarter => 15,
            Self::ThreeHours => 180,
            Self::Day => 1440,
            Self::Week => 10080,
        }
    }

    /// Returns the start of the bucket that contains `at`.
    pub fn begin(self, at: OffsetDateTime) -> OffsetDateTime {
        let seconds = i64::from(self.minutes()) * 60;
        let since = at.unix_timestamp().rem_euclid(seconds);
        let whole = at.to_offset(UtcOffset::UTC).truncate_to_second();
        whole.checked_sub(Duration::seconds(since)).unwrap_or(whole)
    }

    /// Returns the bucket start that is nearest to `at`.
    pub fn nearest(self, at: OffsetDateTime) -> OffsetDateTime {
        self.begin(at.saturating_add(Duration::minutes(self.minutes().into()) / 2))
    }

    /// Whether a bucket starts at `at`.
    pub fn begins_at(self, at: OffsetDateTime) -> bool {
        self.begin(at) == at
    }
}

/// Sums of orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderSums {
    pub placed: i64,
    pub pending: i64,
    pub cancelled: i64,
    pub refunded: i64,
    pub paid: i64,
    pub revenue: Amount,
    pub product_costs: Amount,
    pub gateway_fees: Amount,
    pub attributed_orders: i64,
    pub attributed_revenue: Amount,
}

/// Sums of a product's sales.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProductSums {
    pub quantity: Amount,
    pub revenue: Amount,
}

/// Sums of the orders that are attributed to one campaign, automation or link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributionSums {
    pub orders: i64,
    pub revenue: Amount,
}

/// Sums of carts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CartSums {
    pub carts: i64,
    pub recovered: i64,
}

type ByTime<K, V> = BTreeMap<(Granularity, OffsetDateTime, K), V>;

/// The delta of a batch. The keys are sorted, so that concurrent writers lock the rollup rows in the same order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RollupDelta {
    /// By platform.
    pub orders: ByTime<String, OrderSums>,
    /// By product id.
    pub products: ByTime<String, ProductSums>,
    /// By attribution kind and id.
    pub attributions: ByTime<(&'static str, Uuid), AttributionSums>,
    pub carts: ByTime<(), CartSums>,
}

impl RollupDelta {
    /// Adds the change of an order.
    pub fn order(&mut self, before: Option<&Order>, after: &Order) {
        if let Some(before) = before {
            self.count_order(before, -1);
        }
        self.count_order(after, 1);
    }

    /// Adds the change of a cart.
    pub fn cart(&mut self, before: Option<&Cart>, after: &Cart) {
        if let Some(before) = before {
            self.count_cart(before, -1);
        }
        self.count_cart(after, 1);
    }

    /// Removes zero deltas, which need no write.
    pub fn retain_changes(&mut self) {
        self.orders.retain(|_, sums| *sums != OrderSums::default());
        self.products.retain(|_, sums| *sums != ProductSums::default());
        self.attributions.retain(|_, sums| *sums != AttributionSums::default());
        self.carts.retain(|_, sums| *sums != CartSums::default());
    }

    fn count_order(&mut self, order: &Order, times: i64) {
        for granularity in Granularity::SERIES {
            let key = (granularity, granularity.begin(order.placed_at), order.platform.clone());
            let placed = self.orders.entry(key).or_default();
            placed.placed += times;
            match order.status {
                OrderStatus::Pending => placed.pending += times,
                OrderStatus::Paid => {}
                OrderStatus::Cancelled => placed.cancelled += times,
                OrderStatus::Refunded => placed.refunded += times,
            }
            if let Some(earned_at) = order.earned_at() {
                self.count_earnings(order, granularity, granularity.begin(earned_at), times);
            }
        }
        if let Some(earned_at) = order.earned_at() {
            for granularity in Granularity::MANY {
                self.count_products_and_attribution(order, granularity, granularity.begin(earned_at), times);
            }
        }
    }

    fn count_earnings(&mut self, order: &Order, granularity: Granularity, at: OffsetDateTime, times: i64) {
        let sign = Amount::from(times);
        let earned = self
            .orders
            .entry((granularity, at, order.platform.clone()))
            .or_default();
        earned.paid += times;
        earned.revenue += order.total * sign;
        earned.product_costs += order.product_costs() * sign;
        earned.gateway_fees += order.gateway_fee * sign;
        if order.attribution.is_known() {
            earned.attributed_orders += times;
            earned.attributed_revenue += order.total * sign;
        }
    }

    /// Adds the sums of an order's products and attribution.
    fn count_products_and_attribution(
        &mut self,
        order: &Order,
        granularity: Granularity,
        at: OffsetDateTime,
        times: i64,
    ) {
        let sign = Amount::from(times);
        for item in &order.items {
            let sold = self
                .products
                .entry((granularity, at, item.product_id.clone()))
                .or_default();
            sold.quantity += item.quantity * sign;
            sold.revenue += item.price * item.quantity * sign;
        }
        let attribution = &order.attribution;
        for (kind, id) in [
            (AttributionKind::Automation, attribution.automation_id.map(Uuid::from)),
            (AttributionKind::Campaign, attribution.campaign_id.map(Uuid::from)),
            (AttributionKind::Link, attribution.link_id.map(Uuid::from)),
        ] {
            let Some(id) = id else { continue };
            let attributed = self
                .attributions
                .entry((granularity, at, (kind.as_str(), id)))
                .or_default();
            attributed.orders += times;
            attributed.revenue += order.total * sign;
        }
    }

    fn count_cart(&mut self, cart: &Cart, times: i64) {
        for granularity in Granularity::TOTALS {
            let sums = self
                .carts
                .entry((granularity, granularity.begin(cart.created_at), ()))
                .or_default();
            sums.carts += times;
            if cart.status == CartStatus::Recovered {
                sums.recovered += times;
            }
        }
    }
}
