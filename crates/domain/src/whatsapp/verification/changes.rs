//! What an account is told when the verification or the values of a number change.

use serde_json::{Value, json};

use super::{NumberFacts, Verification, VerificationState};
use crate::shared::{Event, NotificationDraft, NotificationKind, WebhookKind};
use crate::whatsapp::Profile;

/// A change as `number.changed` publishes it.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    change: &'static str,
    previous: Value,
    current: Value,
    reason: Option<String>,
}

/// An event of a business account that concerns a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountEvent<'a> {
    /// WhatsApp's word in lower case.
    pub(super) event: &'a str,
    pub(super) reason: Option<&'a str>,
}

/// The events of a profile whose verification and number become these.
pub(super) fn change_events(
    before: &Profile,
    verification: &Verification,
    number: &NumberFacts,
    account: Option<AccountEvent<'_>>,
) -> Vec<Event> {
    let mut changes = Vec::new();
    let mut events = Vec::new();
    if before.verification.state != verification.state {
        changes.push(state_change(before, verification));
        events.extend(state_notice(before, verification, number));
    }
    let reason = account.and_then(|account| account.reason);
    changes.extend(number_changes(&before.number, number, reason));
    changes.extend(
        account
            .filter(|account| !account.event.is_empty())
            .map(|account| Change {
                change: "account",
                previous: Value::Null,
                current: json!(account.event),
                reason: account.reason.map(str::to_owned),
            }),
    );
    events.extend(quality_notice(before, number));
    if !changes.is_empty() {
        events.push(webhook(before, number, &changes));
    }
    events
}

/// The event of a profile that becomes pending because its ids, token or PIN are entered again. None if it is pending.
pub(in crate::whatsapp) fn restart_event(before: &Profile, after: &Profile) -> Option<Event> {
    let is_change = before.verification.state != after.verification.state;
    is_change.then(|| webhook(after, &after.number, &[state_change(before, &after.verification)]))
}

fn state_change(before: &Profile, verification: &Verification) -> Change {
    let failed = verification.failed_check();
    Change {
        change: "verification",
        previous: json!(before.verification.state),
        current: json!(verification.state),
        reason: failed.and_then(|check| check.found.clone()),
    }
}

fn webhook(profile: &Profile, number: &NumberFacts, changes: &[Change]) -> Event {
    let item = |change: &Change| {
        json!({
            "profile_id": profile.id,
            "phone_number_id": profile.phone_number_id,
            "display_phone_number": number.display_phone_number,
            "change": change.change,
            "previous": change.previous,
            "current": change.current,
            "reason": change.reason,
        })
    };
    Event::webhook(WebhookKind::NumberChanged, changes.iter().map(item).collect())
}

/// The values that were known and are now others. The first answer of WhatsApp is no change.
fn number_changes(before: &NumberFacts, now: &NumberFacts, reason: Option<&str>) -> Vec<Change> {
    let changed = |change: &'static str, previous: Value, current: Value| {
        (!previous.is_null() && previous != current).then(|| Change {
            change,
            previous,
            current,
            reason: reason.map(str::to_owned),
        })
    };
    let name = changed("name", json!(before.verified_name), json!(now.verified_name));
    let name = name.or_else(|| changed("name", json!(before.name_status), json!(now.name_status)));
    [
        changed("quality", json!(before.quality_rating), json!(now.quality_rating)),
        changed("throughput", json!(before.throughput), json!(now.throughput)),
        changed(
            "messaging_limit",
            json!(before.messaging_limit),
            json!(now.messaging_limit),
        ),
        changed("status", json!(before.status), json!(now.status)),
        name,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The notification of a new state. A pending profile needs none: a member entered it, or its checks go on.
fn state_notice(before: &Profile, verification: &Verification, number: &NumberFacts) -> Option<Event> {
    let shown = number
        .display_phone_number
        .as_deref()
        .unwrap_or(&before.phone_number_id);
    let failed = verification.failed_check();
    let (kind, title, message) = match verification.state {
        VerificationState::Pending => return None,
        VerificationState::Verified => (
            NotificationKind::Success,
            format!("WhatsApp number verified: {}", before.name),
            format!("WhatsApp confirmed the number {shown}. It sends and receives messages."),
        ),
        VerificationState::Failed => {
            let found = failed.and_then(|check| check.found.as_deref()).unwrap_or_default();
            let remedy = failed.and_then(|check| check.remedy.as_deref()).unwrap_or_default();
            (
                NotificationKind::Error,
                format!("WhatsApp number not verified: {}", before.name),
                format!("{found}. {remedy}"),
            )
        }
    };
    let data = json!({
        "profile_id": before.id,
        "state": verification.state,
        "check": failed.map(|check| check.name),
    });
    Some(Event::Notification(NotificationDraft {
        kind,
        title,
        message,
        data,
    }))
}

/// The notification of a quality that fell.
fn quality_notice(before: &Profile, now: &NumberFacts) -> Option<Event> {
    let (previous, current) = (before.number.quality_rating.as_deref()?, now.quality_rating.as_deref()?);
    let rank = |quality: &str| ["red", "yellow", "green"].iter().position(|known| *known == quality);
    let fell = rank(current)? < rank(previous)?;
    fell.then(|| {
        Event::Notification(NotificationDraft {
            kind: NotificationKind::Warning,
            title: format!("Quality of a WhatsApp number fell: {}", before.name),
            message: format!(
                "WhatsApp rates the quality as {current}, before as {previous}. Write only to people who expect it."
            ),
            data: json!({ "profile_id": before.id, "previous": previous, "current": current }),
        })
    })
}
