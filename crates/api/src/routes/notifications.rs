//! Routes of notifications: list, read marks and the stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use futures_util::stream;
use recado_domain::notifications::{Notification, NotificationFeed, NotificationQuery, Notifications};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, CursorPage, NotificationId, RouteScope, StoreError, timestamp};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, Interval, interval_at};
use uuid::Uuid;

use crate::error::{ApiError, ErrorCode};
use crate::streams::{Listener, StreamChecks, Streams};
use crate::web::auth::Authenticator;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{OpenApiTag, Operation, cursor_page, custom, data, id, no_content, path_id};
use crate::web::parameters::BoolParam;
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::web::shares::{Shares, StreamShare};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Notifications",
    description: "Messages to the members of an account inside the product, as a list and as a stream.",
};

/// Example of a stream.
const EVENTS: &str = "retry: 1000\n: welcome\n\nevent: notification\nid: 0190a1b2-c3d4-7e5f-8a9b-000000000009\ndata: \
                      {\"id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000009\",\"type\":\"warning\",\"title\":\"Campaign \
                      finished: Volta às aulas\",\"message\":\"1832 messages were sent, 8 were not.\",\
                      \"data\":{\"campaign_id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000007\",\"status\":\"partial\",\
                      \"total\":1840,\"sent\":1832,\"failed\":8,\"simulated\":false},\"read_at\":null,\"created_at\":\"2026-02-01T09:30:00.000Z\"}\n\n";

pub(crate) const UNREAD: BoolParam = BoolParam {
    name: "unread",
    description: "`true`: only unread notifications.",
    default: false,
};

/// The maximum number of missed notifications that a stream loads at a time.
const REPLAY_BATCH: i64 = 500;

/// The interval of comments on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The interval at which a stream checks whether its caller still has access.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The scope that an API key needs as long as its stream is open.
const SCOPE: RouteScope = RouteScope::NOTIFICATIONS_READ;

/// The start of every stream: it sets the client's reconnection delay to a second and shows that the stream is open.
const GREETING: &str = "retry: 1000\n: welcome\n\n";

response_type! {
    /// A message to the members of an account inside the product.
    #[schemars(rename = "Notification")]
    struct NotificationResponse from notification: Notification {
        /// Id of the notification.
        id: NotificationId,
        /// Severity: `info`, `success`, `warning` or `error`. More values may be added.
        #[schemars(example = &"warning")]
        #[serde(rename = "type")]
        kind: String,
        /// Title in one line.
        #[schemars(example = "Campaign finished: Volta às aulas")]
        title: String,
        /// Text in one or two sentences.
        #[schemars(example = "1832 messages were sent, 8 were not.")]
        message: String,
        /// Machine-readable details, as an object whose fields depend on the kind of change.
        #[schemars(with = "Map<String, Value>", example = json!({
            "campaign_id": "0190a1b2-c3d4-7e5f-8a9b-000000000007", "status": "partial", "total": 1840, "sent": 1832,
            "failed": 8, "simulated": false
        }))]
        data: Value,
        /// When a member of the account marked it as read; null while it is unread.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        read_at: Option<OffsetDateTime>,
        /// When the change happened.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/notifications`
async fn list(
    notifications: Data<Notifications>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = NotificationQuery {
        unread: params.boolean(&UNREAD),
        page: params.cursor_query(),
    };
    params.check()?;
    let page = notifications.list(&tenant, &query).await?;
    Ok(responses::ok(page.map(NotificationResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List notifications",
        "Returns the account's notifications, newest first.",
    )
    .takes(&UNREAD)
    .takes_all(cursor_page())
    .responds(data::<CursorPage<NotificationResponse>>(
        "A page of notifications and its `nextCursor`.",
    ))
});

/// `POST /api/notifications/<id>/read`
async fn read(
    notifications: Data<Notifications>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<NotificationId>,
) -> Result<HttpResponse, ApiError> {
    notifications.read(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const READ: Endpoint = endpoint!(read, {
    let description = "Marks a notification as read, for all members. A read notification is not changed.";
    Operation::new("Mark a notification as read", description)
        .takes(path_id("The notification's id."))
        .responds(no_content("The notification is read."))
});

/// `POST /api/notifications/read-all`
async fn read_all(
    notifications: Data<Notifications>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    notifications.read_all(&tenant).await?;
    Ok(responses::no_content())
}

pub(super) const READ_ALL: Endpoint = endpoint!(read_all, {
    let description = "Marks every notification of the account as read, for all members.";
    Operation::new("Mark all notifications as read", description).responds(no_content("All notifications are read."))
});

/// `GET /api/notifications/stream`
async fn stream(
    shares: Data<Shares>,
    streams: Data<Streams>,
    feed: Data<dyn NotificationFeed>,
    stream_checks: Data<StreamChecks>,
    authenticator: Data<Authenticator>,
    Authenticated(tenant): TenantContext,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let account = tenant.account_id;
    let share = shares.stream(&tenant).await?;
    let mut listener = streams.listen(&**feed).await?;
    let until = listener.skip();
    let mut backlog = ReplayBacklog::after(feed.into_inner(), account, last_event_id(&request), until).await?;
    let first = backlog.next_batch(until).await?;
    let stream = Stream {
        backlog,
        listener,
        pending: [GREETING.to_owned()].into_iter().chain(first).collect(),
        heartbeat: interval_at(Instant::now() + HEARTBEAT, HEARTBEAT),
        access_lost: Box::pin(access_lost(stream_checks, authenticator, request, account)),
        share,
    };
    Ok(stream.into_response())
}

pub(super) const STREAM: Endpoint = endpoint!(stream, {
    let description = "Streams new notifications of the account as server-sent events: `event: notification`, the \
                notification's id in `id` and the notification as JSON in `data`. A comment is sent every 15 seconds. \
                The stream stays open until the caller loses access or the server stops.";
    let last_id = "The id of the last received notification. Later notifications are sent first. An unknown id is \
                   ignored.";
    Operation::new("Stream notifications", description)
        .takes(id("Last-Event-ID", last_id).in_header())
        .responds(
            custom("text/event-stream", "The stream.", json!({ "type": "string" }))
                .example(json!(EVENTS))
                .header(
                    "X-Accel-Buffering",
                    "`no`: a proxy must not buffer the stream.",
                    json!({ "type": "string", "const": "no" }),
                ),
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "An account can have at most 20 open streams on one server, and a person or an API key at most 5.",
        )
        .refuses(ErrorCode::Unavailable, "The server has too many open streams.")
});

/// The id in `Last-Event-ID`; a malformed id is ignored.
fn last_event_id(request: &HttpRequest) -> Option<NotificationId> {
    let id = request.headers().get("last-event-id")?.to_str().ok()?;
    Uuid::parse_str(id.trim()).ok().map(NotificationId)
}

/// Serializes a notification as a server-sent event. Compact JSON contains no raw line break, so `data` is one line.
fn event(notification: &Notification) -> String {
    let published = NotificationResponse::from(notification.clone());
    let data = serde_json::to_string(&published).unwrap_or_default();
    format!("event: notification\nid: {}\ndata: {data}\n\n", published.id)
}

/// The notifications that a reconnecting client missed: in batches, oldest first, up to the first one that its
/// listener receives.
struct ReplayBacklog {
    feed: Arc<dyn NotificationFeed>,
    account: AccountId,
    after: i64,
    is_over: bool,
}

impl ReplayBacklog {
    /// Starts after the notification `last`. If `last` is absent or unknown in the account, the backlog is empty.
    async fn after(
        feed: Arc<dyn NotificationFeed>,
        account: AccountId,
        last: Option<NotificationId>,
        until: i64,
    ) -> Result<Self, StoreError> {
        let seq = match last {
            Some(last) => feed.seq_of(account, last).await?,
            None => None,
        };
        Ok(Self {
            feed,
            account,
            after: seq.unwrap_or(until),
            is_over: false,
        })
    }

    /// The next events up to the sequence number `until`, which the listener skipped; empty at the end.
    async fn next_batch(&mut self, until: i64) -> Result<Vec<String>, StoreError> {
        let notifications = match self.after < until {
            true => self.feed.between(self.account, self.after, until, REPLAY_BATCH).await?,
            false => vec![],
        };
        match notifications.last() {
            Some(last) => self.after = last.seq,
            None => self.is_over = true,
        }
        Ok(notifications.iter().map(|entry| event(&entry.notification)).collect())
    }
}

/// The body of one stream response.
struct Stream {
    backlog: ReplayBacklog,
    listener: Listener,
    /// Events to send before new ones.
    pending: VecDeque<String>,
    heartbeat: Interval,
    /// Completes when the caller has lost access.
    access_lost: LocalBoxFuture<'static, ()>,
    share: StreamShare,
}

impl Stream {
    fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::Ok();
        response.insert_header((header::CONTENT_TYPE, "text/event-stream"));
        // A proxy must not buffer the stream.
        response.insert_header(("X-Accel-Buffering", "no"));
        response.streaming(stream::unfold(self, Self::step))
    }

    /// The next chunk; `None` ends the stream.
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while self.pending.is_empty() && !self.backlog.is_over {
            self.replay().await?;
        }
        let chunk = match self.pending.pop_front() {
            Some(chunk) => chunk,
            None => self.next().await?,
        };
        Some((Ok(Bytes::from(chunk)), self))
    }

    /// Loads the next batch of missed notifications. If this fails, the stream ends: the client reconnects and resumes
    /// after the last notification that it received.
    async fn replay(&mut self) -> Option<()> {
        // Notifications that arrived while an earlier batch was loaded belong to a later batch.
        let until = self.listener.skip();
        let events = tokio::select! {
            biased;
            () = &mut self.access_lost => return None,
            events = self.backlog.next_batch(until) => events,
        };
        match events {
            Ok(events) => self.pending.extend(events),
            Err(error) => {
                tracing::warn!(cause = ?error, "notification stream ended: missed notifications could not be read");
                return None;
            }
        }
        Some(())
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                biased;
                () = &mut self.access_lost => return None,
                next = self.listener.next() => {
                    let next = next?;
                    if next.account_id == self.backlog.account {
                        return Some(event(&next.notification));
                    }
                }
                () = self.share.probed() => return Some(": \n\n".to_owned()),
                _ = self.heartbeat.tick() => return Some(": \n\n".to_owned()),
            }
        }
    }
}

/// Authenticates the request again every `ACCESS_CHECK_INTERVAL` and returns when the caller no longer has access to
/// the account. A failed check (503 or 500) does not end the stream. Only one stream of a thread checks at a time, so
/// that many streams cannot exhaust the database connections.
async fn access_lost(
    checks: Data<StreamChecks>,
    authenticator: Data<Authenticator>,
    request: HttpRequest,
    account: AccountId,
) {
    loop {
        tokio::time::sleep(ACCESS_CHECK_INTERVAL).await;
        let permit = checks.0.acquire().await;
        let check = authenticator.tenant(&request).await;
        drop(permit);
        match check {
            Ok(caller) if caller.identity.account_id == account && caller.identity.has_scope(SCOPE) => {}
            Err(error) if matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Internal) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn notification_serializes_with_the_published_fields() {
        let notification = Notification {
            id: NotificationId(Uuid::from_u128(1)),
            kind: "warning".into(),
            title: "t".into(),
            message: "m".into(),
            data: json!({ "a": 1 }),
            read_at: None,
            created_at: datetime!(2026-03-01 12:00:00.123456 UTC),
        };
        let expected = json!({ "id": Uuid::from_u128(1), "type": "warning", "title": "t", "message": "m",
            "data": { "a": 1 }, "read_at": null, "created_at": "2026-03-01T12:00:00.123Z" });
        assert_eq!(json!(NotificationResponse::from(notification)), expected);
    }

    #[test]
    fn event_data_is_one_line() {
        let notification = Notification {
            id: NotificationId(Uuid::nil()),
            kind: "info".into(),
            title: "a\nb\r\nc".into(),
            message: "\u{2028}".into(),
            data: json!({ "x\n": "\n\n" }),
            read_at: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
        };
        let event = event(&notification);
        let lines: Vec<&str> = event.split('\n').collect();
        assert_eq!(lines.len(), 5, "{event}");
        assert_eq!(lines[1], format!("id: {}", Uuid::nil()));
        let data: serde_json::Value = serde_json::from_str(lines[2].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data, json!(NotificationResponse::from(notification)));
    }
}
