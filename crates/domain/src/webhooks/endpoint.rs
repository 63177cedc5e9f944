//! What may be said of an endpoint, and what it makes of it.

use super::{Direction, StoredWebhook, WebhookInput};
use crate::egress::{AllowList, Target};
use crate::shared::{FieldErrors, WebhookKind, redacted_debug, text};

const NAME_CHARS: usize = 100;
const EVENTS: usize = 50;

/// Stands for every kind of event, also those of later versions.
const ALL_EVENTS: &str = "*";

/// What addresses an endpoint may have.
pub(super) struct Addresses<'a> {
    /// Whether plain HTTP will do.
    pub(super) plain_http: bool,
    /// What may be called of the private networks.
    pub(super) allow: &'a AllowList,
}

/// What an input says of an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) name: String,
    pub(super) url: Option<String>,
    pub(super) events: Vec<String>,
    pub(super) direction: Direction,
    pub(super) is_active: bool,
}

redacted_debug!(Content {});

impl Content {
    /// What a stored endpoint says.
    pub(super) fn of(stored: &StoredWebhook) -> Self {
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

/// What a new endpoint says, or a stored one is to say.
pub(super) fn merge(
    stored: Option<Content>,
    input: WebhookInput,
    addresses: &Addresses<'_>,
) -> Result<Content, FieldErrors> {
    let mut errors = FieldErrors::default();
    let is_new = stored.is_none();
    let stored = stored.unwrap_or_else(|| Content {
        name: String::new(),
        url: None,
        events: Vec::new(),
        direction: Direction::Outbound,
        is_active: true,
    });
    let direction = direction(stored.direction, is_new, input.direction.as_deref(), &mut errors);
    // What is stored is not checked again: a change of something else must not fail because of it.
    let given_name = input
        .name
        .or(is_new.then(String::new))
        .map(|name| text::sanitize(&name));
    if given_name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", "must have 1 to 100 characters");
    }
    let name = given_name.unwrap_or(stored.name);
    let events = match input.events {
        Some(events) => checked_events(events, &mut errors),
        // What an inbound endpoint is told of is the caller's choice, whatever stands here.
        None if is_new && direction == Direction::Inbound => vec![ALL_EVENTS.to_owned()],
        None if is_new => {
            errors.add("events", "is required");
            Vec::new()
        }
        None => stored.events,
    };
    let checks_url = is_new || input.url.is_some();
    let url = match input.url {
        Some(given) => checked_url(given, addresses, &mut errors),
        None => stored.url,
    };
    if checks_url && direction == Direction::Outbound && url.is_none() && !errors.0.contains_key("url") {
        errors.add("url", "is required");
    }
    errors.into_result()?;
    Ok(Content {
        name,
        url,
        events,
        direction,
        is_active: input.is_active.unwrap_or(stored.is_active),
    })
}

fn direction(stored: Direction, is_new: bool, given: Option<&str>, errors: &mut FieldErrors) -> Direction {
    match given.map(str::parse) {
        None => stored,
        Some(Err(message)) => {
            errors.add("direction", message);
            stored
        }
        Some(Ok(given)) if !is_new && given != stored => {
            errors.add("direction", "cannot be changed: create another webhook");
            stored
        }
        Some(Ok(given)) => given,
    }
}

/// Each kind once, in the order given; `*` stands for all.
fn checked_events(given: Vec<String>, errors: &mut FieldErrors) -> Vec<String> {
    if given.is_empty() || given.len() > EVENTS {
        errors.add("events", format!("must have 1 to {EVENTS} items"));
    }
    let mut events: Vec<String> = Vec::new();
    for (index, kind) in given.into_iter().enumerate().take(EVENTS) {
        if kind != ALL_EVENTS && kind.parse::<WebhookKind>().is_err() {
            let known = kind.parse::<WebhookKind>().err().unwrap_or_default();
            errors.add(format!("events[{index}]"), format!("{known}, or *"));
        } else if !events.contains(&kind) {
            events.push(kind);
        }
    }
    events
}

/// An inbound endpoint may say where its caller is, by the same rules: nothing is delivered there.
fn checked_url(given: Option<String>, addresses: &Addresses<'_>, errors: &mut FieldErrors) -> Option<String> {
    // An empty address is none, for forms that always send the field.
    let given = given.filter(|url| !url.is_empty())?;
    match Target::written(&given, addresses.allow) {
        Err(refusal) => errors.add("url", refusal.to_string()),
        Ok(target) if !target.is_secure() && !addresses.plain_http => errors.add("url", "must be an https address"),
        Ok(_) => {}
    }
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(stored: Option<Content>, input: WebhookInput) -> Result<Content, Vec<String>> {
        let addresses = Addresses {
            plain_http: false,
            allow: &AllowList::default(),
        };
        merge(stored, input, &addresses).map_err(|errors| errors.0.into_keys().collect())
    }

    fn input(name: &str, url: &str, events: &[&str]) -> WebhookInput {
        WebhookInput {
            name: Some(name.into()),
            url: Some(Some(url.into())),
            events: Some(events.iter().map(|kind| (*kind).to_owned()).collect()),
            ..WebhookInput::default()
        }
    }

    fn fine() -> WebhookInput {
        input("n", "https://e.example", &["*"])
    }

    #[test]
    fn a_new_endpoint_has_a_name_an_address_and_events() {
        let given = input(
            " Loja <b>CI</b> ",
            "https://e.example",
            &["message.sent", "*", "message.sent"],
        );
        let made = checked(None, given).unwrap();
        assert_eq!((made.name.as_str(), made.events.len()), ("Loja CI", 2));
        assert!(made.is_active && made.direction == Direction::Outbound);
        let many = vec!["*"; 51];
        for (given, expected) in [
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
                checked(None, given.clone()),
                Err(expected.into_iter().map(String::from).collect()),
                "{given:?}"
            );
        }
        assert!(checked(None, input(&"é".repeat(100), "https://e.example", &["test.ping"])).is_ok());
    }

    #[test]
    fn an_inbound_one_may_have_an_address_and_stays_what_it_is() {
        let inbound = |url: Option<&str>| WebhookInput {
            url: url.map(|url| Some(url.to_owned())),
            direction: Some("inbound".into()),
            ..fine()
        };
        let addressed = checked(None, inbound(Some("https://e.example"))).unwrap();
        assert_eq!(addressed.url.as_deref(), Some("https://e.example"));
        for wrong in ["http://e.example", "https://10.0.0.1/", "https://e.example/#part", "x"] {
            assert_eq!(
                checked(None, inbound(Some(wrong))),
                Err(vec!["url".to_owned()]),
                "{wrong}"
            );
        }
        for none in [None, Some("")] {
            let made = checked(None, inbound(none)).unwrap();
            assert_eq!((made.direction, &made.url), (Direction::Inbound, &None));
        }
        let cleared = WebhookInput {
            url: Some(None),
            ..WebhookInput::default()
        };
        assert_eq!(checked(Some(addressed), cleared).unwrap().url, None);
        let wordless = WebhookInput {
            events: None,
            ..inbound(None)
        };
        let made = checked(None, wordless).unwrap();
        assert_eq!(made.events, ["*"]);
        let silent = WebhookInput {
            events: Some(vec![]),
            ..inbound(None)
        };
        assert_eq!(checked(None, silent), Err(vec!["events".to_owned()]));
        let turned = WebhookInput {
            direction: Some("outbound".into()),
            ..WebhookInput::default()
        };
        assert_eq!(checked(Some(made), turned), Err(vec!["direction".to_owned()]));
        let sideways = WebhookInput {
            direction: Some("sideways".into()),
            ..fine()
        };
        assert_eq!(checked(None, sideways), Err(vec!["direction".to_owned()]));
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let stored = checked(None, fine()).unwrap();
        assert_eq!(checked(Some(stored.clone()), WebhookInput::default()).unwrap(), stored);
        let off = WebhookInput {
            is_active: Some(false),
            ..WebhookInput::default()
        };
        let changed = checked(Some(stored.clone()), off).unwrap();
        assert!(!changed.is_active && changed.url == stored.url && changed.events == stored.events);
        let nowhere = WebhookInput {
            url: Some(None),
            ..WebhookInput::default()
        };
        assert_eq!(checked(Some(stored), nowhere), Err(vec!["url".to_owned()]));
    }
}
