//! Routes of retention: how long an account keeps its data.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::retention::{
    RemovalCounts, Retention, RetentionBounds, RetentionInput, RetentionKind, RetentionReport,
};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, data};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Data protection",
    description: "How long the account keeps its data, and what it holds of a person.",
};

/// The terms to set, in days within `bounds`. Null keeps the data for ever; an absent field is not changed.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct RetentionBody {
    /// The sends of a campaign, from its end on. They are archived in a file first.
    #[schemars(range(min = 1, max = 36_500), example = 730)]
    #[serde(default, deserialize_with = "nullable")]
    campaign_sends_days: Option<Option<i64>>,
    /// The messages of conversations, with their files, and single messages.
    #[schemars(range(min = 1, max = 36_500), example = 730)]
    #[serde(default, deserialize_with = "nullable")]
    messages_days: Option<Option<i64>>,
    /// The files of messages. They never outlive their message.
    #[schemars(range(min = 1, max = 36_500), example = 180)]
    #[serde(default, deserialize_with = "nullable")]
    media_days: Option<Option<i64>>,
    /// Metric events, from the time at which they occurred.
    #[schemars(range(min = 1, max = 36_500), example = 730)]
    #[serde(default, deserialize_with = "nullable")]
    metric_events_days: Option<Option<i64>>,
    /// Orders and their items, from the order's first report on.
    #[schemars(range(min = 1, max = 36_500), example = 1825)]
    #[serde(default, deserialize_with = "nullable")]
    orders_days: Option<Option<i64>>,
    /// Notifications.
    #[schemars(range(min = 1, max = 36_500), example = 90)]
    #[serde(default, deserialize_with = "nullable")]
    notifications_days: Option<Option<i64>>,
    /// Entries of the audit log: 365 days at least.
    #[schemars(range(min = 1, max = 36_500), example = 1825)]
    #[serde(default, deserialize_with = "nullable")]
    audit_days: Option<Option<i64>>,
}

impl RetentionBody {
    fn into_input(self, bounds: &RetentionBounds) -> Result<RetentionInput, ApiError> {
        let given = [
            (RetentionKind::CampaignSends, self.campaign_sends_days),
            (RetentionKind::Messages, self.messages_days),
            (RetentionKind::Media, self.media_days),
            (RetentionKind::MetricEvents, self.metric_events_days),
            (RetentionKind::Orders, self.orders_days),
            (RetentionKind::Notifications, self.notifications_days),
            (RetentionKind::Audit, self.audit_days),
        ];
        let given = given.into_iter().filter_map(|(kind, days)| Some((kind, days?)));
        Ok(RetentionInput::parse(given, bounds)?)
    }
}

response_type! {
    /// The operator's bounds of all terms, in days.
    #[schemars(rename = "RetentionBounds")]
    struct BoundsResponse from bounds: RetentionBounds {
        /// The smallest term.
        #[schemars(example = 30)]
        min_days: u16,
        /// The largest term.
        #[schemars(example = 3650)]
        max_days: u16,
        /// The smallest term of audit entries.
        #[schemars(example = 365)]
        audit_min_days: u16 = bounds.audit_min_days(),
        /// The term that holds where the account has none; null if the operator sets none.
        #[schemars(example = json!(null))]
        force_days: Option<u16>,
    }
}

response_type! {
    /// How many rows of each kind were over the terms that are set, also over those that take effect later; at most a
    /// million of each.
    #[schemars(rename = "RetentionCounts")]
    struct CountsResponse from counts: RemovalCounts {
        /// Sends of campaigns.
        #[schemars(example = 0)]
        campaign_sends: i64 = count(&counts, RetentionKind::CampaignSends),
        /// Messages of conversations, and single messages.
        #[schemars(example = 1840)]
        messages: i64 = count(&counts, RetentionKind::Messages),
        /// Files of messages.
        #[schemars(example = 212)]
        media: i64 = count(&counts, RetentionKind::Media),
        /// Metric events.
        #[schemars(example = 0)]
        metric_events: i64 = count(&counts, RetentionKind::MetricEvents),
        /// Orders.
        #[schemars(example = 0)]
        orders: i64 = count(&counts, RetentionKind::Orders),
        /// Notifications.
        #[schemars(example = 0)]
        notifications: i64 = count(&counts, RetentionKind::Notifications),
        /// Entries of the audit log.
        #[schemars(example = 0)]
        audit: i64 = count(&counts, RetentionKind::Audit),
    }
}

fn count(counts: &RemovalCounts, kind: RetentionKind) -> i64 {
    counts.get(kind.as_str()).copied().unwrap_or(0)
}

response_type! {
    /// How long the account keeps its data, in days; null: for ever, or as long as the operator forces.
    #[schemars(rename = "Retention")]
    struct RetentionResponse from report: RetentionReport {
        /// The sends of a campaign, from its end on. They are archived in a file first.
        #[schemars(example = 730)]
        campaign_sends_days: Option<u16> = report.terms.days(RetentionKind::CampaignSends),
        /// The messages of conversations, with their files, and single messages.
        #[schemars(example = 730)]
        messages_days: Option<u16> = report.terms.days(RetentionKind::Messages),
        /// The files of messages. They never outlive their message.
        #[schemars(example = 180)]
        media_days: Option<u16> = report.terms.days(RetentionKind::Media),
        /// Metric events, from the time at which they occurred.
        #[schemars(example = 730)]
        metric_events_days: Option<u16> = report.terms.days(RetentionKind::MetricEvents),
        /// Orders and their items, from the order's first report on.
        #[schemars(example = 1825)]
        orders_days: Option<u16> = report.terms.days(RetentionKind::Orders),
        /// Notifications.
        #[schemars(example = 90)]
        notifications_days: Option<u16> = report.terms.days(RetentionKind::Notifications),
        /// Entries of the audit log.
        #[schemars(example = 1825)]
        audit_days: Option<u16> = report.terms.days(RetentionKind::Audit),
        /// When the last of the shortened terms takes effect: 24 hours after it was set. Null: all terms are in force.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        takes_effect_at: Option<OffsetDateTime>,
        /// The operator's bounds.
        bounds: BoundsResponse,
        /// When the last run ended; null before the first one.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_run_at: Option<OffsetDateTime>,
        /// When the next run begins; null: nothing is removed.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        next_run_at: Option<OffsetDateTime>,
        /// What was over its term at the end of the last run.
        would_remove: CountsResponse,
    }
}

/// `GET /api/retention`
async fn get(retention: Data<Retention>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(RetentionResponse::from(retention.get(&tenant).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    let description = "Returns how long the account keeps its data, and what the last run found to be over its term.";
    Operation::new("Get the retention terms", description).responds(data::<RetentionResponse>("The terms."))
});

/// `PUT /api/retention`
async fn update(
    retention: Data<Retention>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<RetentionBody>,
) -> Result<HttpResponse, ApiError> {
    let input = body.into_input(retention.bounds())?;
    Ok(responses::ok(RetentionResponse::from(
        retention.update(&tenant, input).await?,
    )))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Sets the given terms. A shorter term takes effect after 24 hours, and a notification warns of \
                it; until then it can be set back. A longer one takes effect at once. A run follows at once and counts \
                in `would_remove` what is over the new terms. What is removed is gone for good; statistics, costs and \
                other sums stay as they were.";
    let example = json!({ "messages_days": 730, "media_days": 180, "notifications_days": null });
    Operation::new("Change the retention terms", description)
        .body(Body::json::<RetentionBody>().example(example))
        .responds(data::<RetentionResponse>("The changed terms."))
        .refuses(ErrorCode::Invalid, "A term is outside of `bounds`.")
});
