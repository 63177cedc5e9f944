//! What the reference says of what shops and other systems tell.

use recado_domain::ingestion::IngestionResult;
use serde_json::{Value, json};

use super::operation::{Body, Operation, data};
use super::{ErrorCode, OpenApiTag};
use crate::routes::ingestion::{AdSpendBody, CartsBody, EventsBody, OrdersBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Ingestion",
    description: "Orders, carts, ad spend and events, as shops and other systems tell them.",
};

const REFUSED: &str = "One item that is wrong refuses all; each is named by its place, as `orders[3].total`. A campaign, \
                       automation or contact that does not exist is named, too.";

const MOMENT: &str = "2026-02-01T09:30:00.000Z";

pub(crate) fn orders() -> Operation {
    let description = "Takes in orders as they are now, new ones and known ones: `platform` and `external_id` tell \
                them apart. A field that is left out keeps what was told before; whoever names a campaign, an \
                automation or a link says anew what the order is owed to.";
    Operation::new("Tell orders", description)
        .body(Body::json::<OrdersBody>().example(json!({ "orders": [order()] })))
        .answers(data::<IngestionResult>("How many were new or changed something."))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn carts() -> Operation {
    let description = "Takes in carts as they are now: `platform` and `external_id` tell them apart.";
    let cart = json!({
        "external_id": "c-77", "platform": "loja", "contact_phone": "+5511961234567", "total": 89.9,
        "status": "abandoned", "created_at": MOMENT,
    });
    Operation::new("Tell carts", description)
        .body(Body::json::<CartsBody>().example(json!({ "carts": [cart] })))
        .answers(data::<IngestionResult>("How many were new or changed something."))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn ad_spend() -> Operation {
    let description = "Takes in what was spent on ads: `date` and `source` tell entries apart.";
    let entry = json!({ "date": "2026-02-01", "source": "instagram", "amount": 120.5 });
    Operation::new("Tell ad spend", description)
        .body(Body::json::<AdSpendBody>().example(json!({ "entries": [entry] })))
        .answers(data::<IngestionResult>("How many were new or changed something."))
        .refuses(ErrorCode::Invalid, REFUSED)
}

pub(crate) fn events() -> Operation {
    let description = "Takes in events of metrics: facts, told once. One with a known `id` changes nothing.";
    let event = json!({
        "metric_name": "page_view", "contact_phone": "+5511961234567", "value": 1.5, "currency": "BRL",
        "source": "site", "properties": { "path": "/bolos" }, "occurred_at": MOMENT,
    });
    Operation::new("Tell events", description)
        .body(Body::json::<EventsBody>().example(json!({ "events": [event] })))
        .answers(data::<IngestionResult>("How many were new."))
        .refuses(ErrorCode::Invalid, REFUSED)
}

fn order() -> Value {
    json!({
        "external_id": "1001", "platform": "loja", "contact_phone": "+5511961234567", "status": "paid",
        "total": 149.9, "gateway_fee": 4.9, "placed_at": MOMENT, "paid_at": MOMENT, "link_code": "Ab3dE9x_2",
        "items": [{ "product_id": "7", "name": "Bolo de cenoura", "quantity": 1, "price": 149.9, "cost": 60 }],
    })
}
