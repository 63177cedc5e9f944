//! The route of a number's health.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ProfileId, timestamp};
use recado_domain::whatsapp::verification::{
    CanSend, HealthEntity, HealthError, NumberHealth, ServiceMessages, Verifications,
};
use time::OffsetDateTime;

use super::{ID, NumberResponse, VerificationResponse};
use crate::error::ApiError;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Operation, data, path_id};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

response_type! {
    /// Whether a number can send, and what it did last.
    #[schemars(rename = "NumberHealth")]
    struct NumberHealthResponse from health: NumberHealth {
        /// When WhatsApp gave this answer. Null if it never did.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        asked_at: Option<OffsetDateTime>,
        /// Whether WhatsApp could not be asked now, so that the answer is an earlier one or missing.
        stale: bool,
        /// Whether WhatsApp lets the number send: the worst of the entities.
        #[schemars(example = &"available")]
        can_send: CanSend,
        /// The entities on which sending depends.
        entities: Vec<HealthEntityResponse> = health.entities.into_iter().map(HealthEntityResponse::from).collect(),
        /// The verification of the number.
        verification: VerificationResponse,
        /// What WhatsApp says about the number.
        number: NumberResponse,
        /// When the number last received a message.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_inbound_at: Option<OffsetDateTime>,
        /// When WhatsApp last called back about the number.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_callback_at: Option<OffsetDateTime>,
        /// When WhatsApp last accepted a message of the number.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_accepted_at: Option<OffsetDateTime>,
        /// The service messages of the current month.
        service_messages: ServiceMessagesResponse,
    }
}

response_type! {
    /// The service messages of a number in a month.
    #[schemars(rename = "ServiceMessages")]
    struct ServiceMessagesResponse from messages: ServiceMessages {
        /// The current month in UTC.
        #[schemars(example = &"2026-11")]
        month: String,
        /// The replies that WhatsApp accepted in this month.
        #[schemars(example = 12)]
        used: i64,
    }
}

response_type! {
    /// An entity on which sending from a number depends.
    #[schemars(rename = "HealthEntity")]
    struct HealthEntityResponse from entity: HealthEntity {
        /// `phone_number`, `waba`, `business` or `app`.
        #[serde(rename = "type")]
        #[schemars(example = &"waba")]
        kind: String,
        /// WhatsApp's id of the entity.
        #[schemars(example = &"102290129340398")]
        id: Option<String>,
        /// Whether it may send.
        can_send: CanSend,
        /// Why it is blocked.
        errors: Vec<HealthErrorResponse> = entity.errors.into_iter().map(HealthErrorResponse::from).collect(),
        /// Why it is limited.
        info: Vec<String>,
    }
}

response_type! {
    /// An error of an entity of a number's health.
    #[schemars(rename = "HealthError")]
    struct HealthErrorResponse from error: HealthError {
        /// WhatsApp's error code.
        code: Option<i64>,
        /// WhatsApp's description.
        #[schemars(example = &"The payment method is missing")]
        description: Option<String>,
        /// WhatsApp's proposal.
        #[schemars(example = &"Add a payment method to the business account")]
        solution: Option<String>,
    }
}

/// `GET /api/whatsapp/profiles/<id>/health`
async fn health(
    verifications: Data<Verifications>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    let health = verifications.health(&tenant, id).await?;
    Ok(responses::ok(NumberHealthResponse::from(health)))
}

pub(crate) const HEALTH: Endpoint = endpoint!(health, {
    let description = "Returns whether WhatsApp lets a number send, and what it did last. WhatsApp is asked at most once \
                a minute for each number. If it cannot be asked, the last answer is returned with `stale`.";
    Operation::new("Get the health of a WhatsApp number", description)
        .takes(path_id(ID))
        .responds(data::<NumberHealthResponse>("The health of the number."))
});
