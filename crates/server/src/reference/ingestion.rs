//! OpenAPI documentation of ingestion: orders, carts, ad spend and metric events.

use recado_domain::ingestion::IngestionResult;
use serde_json::{Value, json};

use super::operation::{Body, Operation, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::ingestion::{AdSpendBody, CartsBody, EventsBody, OrdersBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Ingestion",
    description: "Report orders, carts, ad spend and metric events from shops and other systems.",
};

const REFUSED: &str = "One invalid item rejects the whole request. Each invalid item is named by its index, such as \
                       `orders[3].total`. A reference to a missing campaign, automation or contact is invalid, too.";

const EXAMPLE_TIME: &str = "2026-02-01T09:30:00.000Z";

pub(crate) fn orders() -> Operation {
    let description = "Creates or updates orders by `platform` and `external_id`. Omitted fields keep their value. A \
                named campaign, automation or link replaces the attribution.";
    Operation::new("Upsert orders", description)
        .body(Body::json::<OrdersBody>().example(json!({ "orders": [order()] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn carts() -> Operation {
    let description = "Creates or updates carts by `platform` and `external_id`.";
    let cart = json!({
        "external_id": "c-77", "platform": "loja", "contact_phone": "+5511961234567", "total": 89.9,
        "status": "abandoned", "created_at": EXAMPLE_TIME,
    });
    Operation::new("Upsert carts", description)
        .body(Body::json::<CartsBody>().example(json!({ "carts": [cart] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn ad_spend() -> Operation {
    let description = "Creates or replaces ad spend entries by `date` and `source`.";
    let entry = json!({ "date": "2026-02-01", "source": "instagram", "amount": 120.5 });
    Operation::new("Upsert ad spend", description)
        .body(Body::json::<AdSpendBody>().example(json!({ "entries": [entry] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn events() -> Operation {
    let description = "Records metric events. Events are immutable: an item whose `id` was recorded before is ignored.";
    let event = json!({
        "metric_name": "page_view", "contact_phone": "+5511961234567", "value": 1.5, "currency": "BRL",
        "source": "site", "properties": { "path": "/bolos" }, "occurred_at": EXAMPLE_TIME,
    });
    Operation::new("Record metric events", description)
        .body(Body::json::<EventsBody>().example(json!({ "events": [event] })))
        .responds(data::<IngestionResult>("The number of newly recorded events."))
        .refuses(ErrorCode::Invalid, REFUSED)
}

fn order() -> Value {
    json!({
        "external_id": "1001", "platform": "loja", "contact_phone": "+5511961234567", "status": "paid",
        "total": 149.9, "gateway_fee": 4.9, "placed_at": EXAMPLE_TIME, "paid_at": EXAMPLE_TIME,
        "link_code": "Ab3dE9x_2",
        "items": [{ "product_id": "7", "name": "Bolo de cenoura", "quantity": 1, "price": 149.9, "cost": 60 }],
    })
}
