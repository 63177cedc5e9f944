//! Validates the fields of a new or changed endpoint.

use super::{Direction, StoredWebhook, WebhookInput};
use crate::egress::{AllowList, Target};
use crate::shared::{FieldErrors, WebhookKind, redacted_debug, text};

const MAX_NAME_CHARS: usize = 100;
const MAX_EVENTS: usize = 50;

/// Subscribes to every event type, also to those of later versions.
const ALL_EVENTS: &str = "*";

/// Rules for the URL of an endpoint.
pub(super) struct UrlRules<'a> {
    /// Whether plain HTTP is allowed.
    pub(super) plain_http: bool,
    /// Private networks that may be called.
    pub(super) allow: &'a AllowList,
}

/// The editable fields of an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct EndpointFields {
    pub(super) name: String,
    pub(super) url: Option<String>,
    pub(super) events: Vec<String>,
    pub(super) direction: Direction,
    pub(super) is_active: bool,
}

redacted_debug!(EndpointFields {});

impl EndpointFields {
    pub(super) fn from_stored(stored: &StoredWebhook) -> Self {
        let webhook = &stored.webhook;
        Self {
            name: webhook.name.clone(),
            url: webhook.url.clone(),
            events: webhook.events.clone(),
            direction: webhook.direction,
            is_active: webhook.is_active,
        }
    }
}

/// Validates `input` and merges it with the stored fields. `None` creates an endpoint.
pub(super) fn merge(
    stored: Option<EndpointFields>,
    input: WebhookInput,
    url_rules: &UrlRules<'_>,
) -> Result<EndpointFields, FieldErrors> {
    let mut errors = FieldErrors::default();
    let is_new = stored.is_none();
    let stored = stored.unwrap_or_else(|| EndpointFields {
        name: String::new(),
        url: None,
        events: Vec::new(),
        direction: Direction::Outbound,
        is_active: true,
    });
    let direction = merge_direction(stored.direction, is_new, input.direction.as_deref(), &mut errors);
    // Stored fields are not validated again: a stored value must not make the change of another field fail.
    let new_name = input
        .name
        .or(is_new.then(String::new))
        .map(|name| text::sanitize(&name));
    if new_name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > MAX_NAME_CHARS)
    {
        errors.add("name", "must have 1 to 100 characters");
    }
    let name = new_name.unwrap_or(stored.name);
    let events = match input.events {
        Some(events) => validate_events(events, &mut errors),
        // An inbound endpoint ignores `events`: its caller chooses the event types.
        None if is_new && direction == Direction::Inbound => vec![ALL_EVENTS.to_owned()],
        None if is_new => {
            errors.add("events", "is required");
            Vec::new()
        }
        None => stored.events,
    };
    let checks_url = is_new || input.url.is_some();
    let url = match input.url {
        Some(requested) => validate_url(requested, url_rules, &mut errors),
        None => stored.url,
    };
    if checks_url && direction == Direction::Outbound && url.is_none() && !errors.0.contains_key("url") {
        errors.add("url", "is required");
    }
    errors.into_result()?;
    Ok(EndpointFields {
        name,
        url,
        events,
        direction,
        is_active: input.is_active.unwrap_or(stored.is_active),
    })
}

fn merge_direction(stored: Direction, is_new: bool, requested: Option<&str>, errors: &mut FieldErrors) -> Direction {
    match requested.map(str::parse) {
        None => stored,
        Some(Err(message)) => {
            errors.add("direction", message);
            stored
        }
        Some(Ok(requested)) if !is_new && requested != stored => {
            errors.add("direction", "cannot be changed: create another webhook");
            stored
        }
        Some(Ok(requested)) => requested,
    }
}

/// Validates event types and removes duplicates. `*` means all types.
fn validate_events(requested: Vec<String>, errors: &mut FieldErrors) -> Vec<String> {
    if requested.is_empty() || requested.len() > MAX_EVENTS {
        errors.add("events", format!("must have 1 to {MAX_EVENTS} items"));
    }
    let mut events: Vec<String> = Vec::new();
    for (index, kind) in requested.into_iter().enumerate().take(MAX_EVENTS) {
        if kind != ALL_EVENTS && kind.parse::<WebhookKind>().is_err() {
            let message = kind.parse::<WebhookKind>().err().unwrap_or_default();
            errors.add(format!("events[{index}]"), format!("{message}, or *"));
        } else if !events.contains(&kind) {
            events.push(kind);
        }
    }
    events
}

/// Validates the URL. An inbound endpoint may name its caller's URL under the same rules, but receives no deliveries.
fn validate_url(requested: Option<String>, url_rules: &UrlRules<'_>, errors: &mut FieldErrors) -> Option<String> {
    // HTML forms always send the field, so an empty URL counts as absent.
    let requested = requested.filter(|url| !url.is_empty())?;
    match Target::written(&requested, url_rules.allow) {
        Err(refusal) => errors.add("url", refusal.to_string()),
        Ok(target) if !target.is_secure() && !url_rules.plain_http => errors.add("url", "must be an https address"),
        Ok(_) => {}
    }
    Some(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge_input(stored: Option<EndpointFields>, input: WebhookInput) -> Result<EndpointFields, Vec<String>> {
        let url_rules = UrlRules {
            plain_http: false,
            allow: &AllowList::default(),
        };
        merge(stored, input, &url_rules).map_err(|errors| errors.0.into_keys().collect())
    }

    fn input(name: &str, url: &str, events: &[&str]) -> WebhookInput {
        WebhookInput {
            name: Some(name.into()),
            url: Some(Some(url.into())),
            events: Some(events.iter().map(|kind| (*kind).to_owned()).collect()),
            ..WebhookInput::default()
        }
    }

    fn valid_input() -> WebhookInput {
        input("n", "https://e.example", &["*"])
    }

    #[test]
    fn endpoint_create_requires_name_url_and_events() {
        let requested = input(
            " Loja <b>CI</b> ",
            "https://e.example",
            &["message.sent", "*", "message.sent"],
        );
        let endpoint = merge_input(None, requested).unwrap();
        assert_eq!((endpoint.name.as_str(), endpoint.events.len()), ("Loja CI", 2));
        assert!(endpoint.is_active && endpoint.direction == Direction::Outbound);
        let many = vec!["*"; 51];
        for (requested, expected) in [
            (WebhookInput::default(), vec!["events", "name", "url"]),
            (input("", "https://e.example", &["*"]), vec!["name"]),
            (input(&"é".repeat(101), "https://e.example", &["*"]), vec!["name"]),
            (input("n", "http://e.example", &["*"]), vec!["url"]),
            (input("n", "https://10.0.0.1/", &["*"]), vec!["url"]),
            (input("n", "https://e.example/#part", &["*"]), vec!["url"]),
            (input("n", "", &["*"]), vec!["url"]),
            (input("n", "https://e.example", &[]), vec!["events"]),
            (input("n", "https://e.example", &many), vec!["events"]),
            (
                input("n", "https://e.example", &["*", "message.exploded"]),
                vec!["events[1]"],
            ),
        ] {
            assert_eq!(
                merge_input(None, requested.clone()),
                Err(expected.into_iter().map(String::from).collect()),
                "{requested:?}"
            );
        }
        assert!(merge_input(None, input(&"é".repeat(100), "https://e.example", &["test.ping"])).is_ok());
    }

    #[test]
    fn inbound_endpoint_url_is_optional_and_direction_is_fixed() {
        let inbound = |url: Option<&str>| WebhookInput {
            url: url.map(|url| Some(url.to_owned())),
            direction: Some("inbound".into()),
            ..valid_input()
        };
        let addressed = merge_input(None, inbound(Some("https://e.example"))).unwrap();
        assert_eq!(addressed.url.as_deref(), Some("https://e.example"));
        for wrong in ["http://e.example", "https://10.0.0.1/", "https://e.example/#part", "x"] {
            assert_eq!(
                merge_input(None, inbound(Some(wrong))),
                Err(vec!["url".to_owned()]),
                "{wrong}"
            );
        }
        for none in [None, Some("")] {
            let endpoint = merge_input(None, inbound(none)).unwrap();
            assert_eq!((endpoint.direction, &endpoint.url), (Direction::Inbound, &None));
        }
        let cleared = WebhookInput {
            url: Some(None),
            ..WebhookInput::default()
        };
        assert_eq!(merge_input(Some(addressed), cleared).unwrap().url, None);
        let without_events = WebhookInput {
            events: None,
            ..inbound(None)
        };
        let endpoint = merge_input(None, without_events).unwrap();
        assert_eq!(endpoint.events, ["*"]);
        let no_events = WebhookInput {
            events: Some(vec![]),
            ..inbound(None)
        };
        assert_eq!(merge_input(None, no_events), Err(vec!["events".to_owned()]));
        let outbound = WebhookInput {
            direction: Some("outbound".into()),
            ..WebhookInput::default()
        };
        assert_eq!(merge_input(Some(endpoint), outbound), Err(vec!["direction".to_owned()]));
        let unknown_direction = WebhookInput {
            direction: Some("sideways".into()),
            ..valid_input()
        };
        assert_eq!(merge_input(None, unknown_direction), Err(vec!["direction".to_owned()]));
    }

    #[test]
    fn endpoint_update_keeps_absent_fields() {
        let stored = merge_input(None, valid_input()).unwrap();
        assert_eq!(
            merge_input(Some(stored.clone()), WebhookInput::default()).unwrap(),
            stored
        );
        let off = WebhookInput {
            is_active: Some(false),
            ..WebhookInput::default()
        };
        let changed = merge_input(Some(stored.clone()), off).unwrap();
        assert!(!changed.is_active && changed.url == stored.url && changed.events == stored.events);
        let without_url = WebhookInput {
            url: Some(None),
            ..WebhookInput::default()
        };
        assert_eq!(merge_input(Some(stored), without_url), Err(vec!["url".to_owned()]));
    }
}
