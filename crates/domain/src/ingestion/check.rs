//! Validates orders, carts, ad spend and metric events.

use time::{Date, Duration, OffsetDateTime};

use super::batch::Item;
use super::{
    AdSpend, AdSpendInput, CartDraft, CartInput, EventDraft, EventInput, OrderDraft, OrderInput, OrderItem,
    OrderItemInput, Who,
};
use crate::shared::{Amount, MetricEventId, text};

const KEY_CHARS: usize = 255;
const NAME_CHARS: usize = 200;
const PRODUCT_CHARS: usize = 500;
/// The largest size of an event's properties in bytes. It bounds the size of a page of events.
const PROPERTIES_BYTES: usize = 64 * 1024;

/// How far a reported time may be ahead of the server's clock. It is then recorded as the current time.
const SKEW: Duration = Duration::minutes(10);

pub(super) fn order(input: OrderInput, item: &mut Item<'_>) -> Option<OrderDraft> {
    let external_id = item.text("external_id", input.external_id, KEY_CHARS);
    let platform = item.text("platform", input.platform, KEY_CHARS);
    let phone = item.phone("contact_phone", input.contact_phone.as_deref());
    let status = item.parse_enum("status", input.status.as_deref());
    let total = item.required_amount("total", input.total);
    let items = item.required("items", input.items);
    let items = items.map(|items| item.parts("items", items, order_item));
    let gateway_fee = item.amount("gateway_fee", input.gateway_fee);
    let link_code = item.optional_text("link_code", input.link_code, KEY_CHARS);
    let placed_at = item.required("placed_at", input.placed_at);
    Some(OrderDraft {
        platform: platform?,
        external_id: external_id?,
        phone,
        status: status?,
        total: total?,
        items: items?,
        gateway_fee,
        campaign_id: input.campaign_id,
        automation_id: input.automation_id,
        link_code,
        placed_at: placed_at?,
        paid_at: input.paid_at,
    })
}

/// A quantity may have decimals, because goods are also sold by weight. Its limit is one million.
fn order_item(input: OrderItemInput, item: &mut Item<'_>) -> Option<OrderItem> {
    let product_id = item.text("product_id", input.product_id, KEY_CHARS);
    let name = item.text("name", input.name, PRODUCT_CHARS);
    let quantity = item.required_amount("quantity", input.quantity);
    if quantity.is_some_and(|quantity| quantity.is_zero() || quantity > Amount::from(1_000_000)) {
        item.reject("quantity", "must be more than 0 and at most 1000000");
    }
    let price = item.required_amount("price", input.price);
    let cost = item.amount("cost", input.cost);
    Some(OrderItem {
        product_id: product_id?,
        name: name?,
        quantity: quantity?,
        price: price?,
        cost,
    })
}

pub(super) fn cart(input: CartInput, item: &mut Item<'_>) -> Option<CartDraft> {
    let external_id = item.text("external_id", input.external_id, KEY_CHARS);
    let platform = item.text("platform", input.platform, KEY_CHARS);
    let phone = item.phone("contact_phone", input.contact_phone.as_deref());
    let total = item.required_amount("total", input.total);
    let status = item.parse_enum("status", input.status.as_deref());
    let created_at = item.required("created_at", input.created_at);
    Some(CartDraft {
        platform: platform?,
        external_id: external_id?,
        phone,
        total: total?,
        status: status?,
        created_at: created_at?,
    })
}

pub(super) fn ad_spend(input: AdSpendInput, item: &mut Item<'_>) -> Option<AdSpend> {
    let text = item.required("date", input.date);
    let date = text.as_deref().and_then(date);
    if text.is_some() && date.is_none() {
        item.reject("date", "must be a date such as 2026-01-31");
    }
    let source = item.text("source", input.source, KEY_CHARS);
    let amount = item.required_amount("amount", input.amount);
    Some(AdSpend {
        date: date?,
        source: source?,
        amount: amount?,
    })
}

/// Parses `YYYY-MM-DD`, from year 1.
fn date(text: &str) -> Option<Date> {
    let format = time::macros::format_description!("[year]-[month]-[day]");
    Date::parse(text, &format)
        .ok()
        .filter(|date| text.len() == 10 && date.year() >= 1)
}

/// Validates a metric event. Its time is never in the future: so the contacts of a period that ends today are those
/// whose last event is in the period, and rollups can count them.
pub(super) fn event(
    input: EventInput,
    item: &mut Item<'_>,
    id: MetricEventId,
    now: OffsetDateTime,
) -> Option<EventDraft> {
    let metric_name = item.text("metric_name", input.metric_name, NAME_CHARS);
    let display_name = item.optional_text("display_name", input.display_name, NAME_CHARS);
    let category = item.optional_text("category", input.category, NAME_CHARS);
    let source = item.text("source", input.source, NAME_CHARS);
    let value = item.optional_signed("value", input.value);
    if input
        .currency
        .as_ref()
        .is_some_and(|code| code.len() != 3 || !code.bytes().all(|b| b.is_ascii_uppercase()))
    {
        item.reject("currency", "must be a code of three capital letters");
    }
    let phone = item.phone("contact_phone", input.contact_phone.as_deref());
    let who = input.contact_id.map(Who::Contact).or(phone.map(Who::Phone));
    if who.is_none() && input.contact_phone.is_none_or(|phone| phone.trim().is_empty()) {
        item.reject("contact_id", "is required, unless contact_phone is given");
    }
    let properties = input.properties.unwrap_or_default();
    if text::json_bytes(&properties) > PROPERTIES_BYTES {
        item.reject("properties", format!("must be at most {PROPERTIES_BYTES} bytes"));
    }
    let occurred_at = input.occurred_at.unwrap_or(now);
    if occurred_at > now + SKEW {
        item.reject("occurred_at", "must not be in the future");
    }
    Some(EventDraft {
        id,
        metric_name: metric_name?,
        display_name,
        category,
        who: who?,
        value,
        currency: input.currency,
        source: source?,
        properties,
        occurred_at: occurred_at.min(now),
    })
}
