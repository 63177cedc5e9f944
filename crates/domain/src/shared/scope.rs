//! Scopes of API keys: the part of a member's rights that a key has. A scope never adds a right.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{TemplateId, string_enum};

/// The scope that grants every right of a member.
const EVERYTHING: &str = "*";

/// The prefix of a scope for one template.
const TRIGGER: &str = "trigger";

string_enum! {
    /// A group of routes that scopes name.
    ScopeArea {
        Contacts = "contacts",
        Segments = "segments",
        Campaigns = "campaigns",
        Messages = "messages",
        Conversations = "conversations",
        Templates = "templates",
        Whatsapp = "whatsapp",
        Webhooks = "webhooks",
        Ingest = "ingest",
        Automations = "automations",
        Links = "links",
        Analytics = "analytics",
        Brand = "brand",
        Notifications = "notifications",
        Account = "account",
    }
}

string_enum! {
    /// What a scope permits in its area.
    ScopeVerb {
        /// Routes that every role may call.
        Read = "read",
        /// Routes that every role but viewer may call.
        Write = "write",
        /// Routes that send a campaign's messages.
        Send = "send",
    }
}

/// The scope that a route requires. No verb implies another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteScope {
    area: ScopeArea,
    verb: ScopeVerb,
}

impl RouteScope {
    /// The scope of the routes that send a campaign's messages.
    pub const CAMPAIGNS_SEND: Self = Self {
        area: ScopeArea::Campaigns,
        verb: ScopeVerb::Send,
    };

    /// The scope of the routes that read notifications.
    pub const NOTIFICATIONS_READ: Self = Self {
        area: ScopeArea::Notifications,
        verb: ScopeVerb::Read,
    };

    /// `None`: the area has no such scope. `account` is read only, `ingest` is write only, and only campaigns are sent.
    pub const fn new(area: ScopeArea, verb: ScopeVerb) -> Option<Self> {
        let exists = match verb {
            ScopeVerb::Read => !matches!(area, ScopeArea::Ingest),
            ScopeVerb::Write => !matches!(area, ScopeArea::Account),
            ScopeVerb::Send => matches!(area, ScopeArea::Campaigns),
        };
        if exists { Some(Self { area, verb }) } else { None }
    }

    /// Every scope that a route may require.
    pub fn all() -> impl Iterator<Item = Self> {
        let verbs = |area: ScopeArea| ScopeVerb::ALL.iter().filter_map(move |verb| Self::new(area, *verb));
        ScopeArea::ALL.iter().copied().flat_map(verbs)
    }
}

impl fmt::Display for RouteScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.area, self.verb)
    }
}

/// A scope of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyScope {
    /// `*`: every right of a member.
    Everything,
    /// `<area>:<verb>`.
    Route(RouteScope),
    /// `trigger:<template id>`: single messages of one template.
    Trigger(TemplateId),
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str(EVERYTHING),
            Self::Route(scope) => scope.fmt(f),
            Self::Trigger(template) => write!(f, "{TRIGGER}:{template}"),
        }
    }
}

impl FromStr for KeyScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || "is not a scope; accepted are *, <area>:<verb> and trigger:<template id>".to_owned();
        if text == EVERYTHING {
            return Ok(Self::Everything);
        }
        let (area, verb) = text.split_once(':').ok_or_else(unknown)?;
        if area == TRIGGER {
            let template = uuid::Uuid::try_parse(verb).map_err(|_| unknown())?;
            return Ok(Self::Trigger(template.into()));
        }
        let (area, verb) = area.parse().ok().zip(verb.parse().ok()).ok_or_else(unknown)?;
        RouteScope::new(area, verb).map(Self::Route).ok_or_else(unknown)
    }
}

/// The scopes of a key, in the order in which the caller gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScopes(Vec<KeyScope>);

impl Default for KeyScopes {
    /// Every right of a member, as keys had it before scopes existed.
    fn default() -> Self {
        Self(vec![KeyScope::Everything])
    }
}

impl KeyScopes {
    /// Without repetitions.
    pub fn new(scopes: impl IntoIterator<Item = KeyScope>) -> Self {
        let mut distinct = Vec::new();
        for scope in scopes {
            if !distinct.contains(&scope) {
                distinct.push(scope);
            }
        }
        Self(distinct)
    }

    /// Reads stored scopes. Scopes that this version does not know grant nothing.
    pub fn from_stored(stored: &[String]) -> Self {
        Self::new(stored.iter().filter_map(|text| text.parse().ok()))
    }

    /// The stored and published form.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(KeyScope::to_string).collect()
    }

    /// Whether the key has exactly this scope.
    pub fn has(&self, scope: KeyScope) -> bool {
        self.0.contains(&scope)
    }

    /// Whether the key may send single messages of at least one template.
    pub fn triggers(&self) -> bool {
        self.0.iter().any(|held| matches!(held, KeyScope::Trigger(_)))
    }

    /// Whether a key with these scopes may call a route that requires `scope`.
    pub fn allow(&self, scope: RouteScope) -> bool {
        let grants = |held: &KeyScope| *held == KeyScope::Everything || *held == KeyScope::Route(scope);
        self.0.iter().any(grants)
    }
}

impl Serialize for KeyScopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(KeyScope::to_string))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn scopes(texts: &[&str]) -> KeyScopes {
        KeyScopes::new(texts.iter().map(|text| text.parse().unwrap()))
    }

    fn required(text: &str) -> RouteScope {
        match text.parse() {
            Ok(KeyScope::Route(scope)) => scope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scope_text_round_trips() {
        let trigger = format!("trigger:{}", Uuid::from_u128(7));
        let known = RouteScope::all().map(|scope| scope.to_string());
        for text in known.chain(["*".to_owned(), trigger]) {
            assert_eq!(text.parse::<KeyScope>().unwrap().to_string(), text);
        }
        assert_eq!(RouteScope::all().count(), 29);
        let upper = format!("trigger:{}", Uuid::from_u128(0xab).to_string().to_uppercase());
        assert_eq!(upper.parse::<KeyScope>().unwrap().to_string(), upper.to_lowercase());
    }

    #[test]
    fn unknown_scope_is_refused() {
        for text in [
            "",
            "**",
            "contacts",
            "contacts:",
            ":read",
            "contacts:delete",
            "contacts:send",
            "Contacts:read",
            " contacts:read",
            "contacts:read ",
            "contacts:read:write",
            "account:write",
            "ingest:read",
            "admin:read",
            "*:read",
            "contacts:*",
            "trigger",
            "trigger:",
            "trigger:7",
            "trigger:*",
        ] {
            assert!(text.parse::<KeyScope>().is_err(), "{text}");
        }
    }

    #[test]
    fn verb_implies_no_other_verb() {
        assert!(scopes(&["contacts:read"]).allow(required("contacts:read")));
        assert!(!scopes(&["contacts:read"]).allow(required("contacts:write")));
        assert!(!scopes(&["contacts:write"]).allow(required("contacts:read")));
        assert!(!scopes(&["campaigns:write"]).allow(RouteScope::CAMPAIGNS_SEND));
        assert!(scopes(&["campaigns:send"]).allow(RouteScope::CAMPAIGNS_SEND));
        assert!(!scopes(&["campaigns:send"]).allow(required("campaigns:write")));
        assert!(!scopes(&["segments:read"]).allow(required("contacts:read")));
    }

    #[test]
    fn everything_allows_all_and_trigger_allows_no_route() {
        let trigger = scopes(&[&format!("trigger:{}", Uuid::nil())]);
        for scope in RouteScope::all() {
            assert!(KeyScopes::default().allow(scope));
            assert!(!trigger.allow(scope));
        }
    }

    #[test]
    fn scopes_are_distinct_and_unknown_stored_scopes_grant_nothing() {
        assert_eq!(scopes(&["links:read", "*", "links:read"]).texts(), ["links:read", "*"]);
        let stored = ["later:read".to_owned(), "links:write".to_owned()];
        assert_eq!(KeyScopes::from_stored(&stored), scopes(&["links:write"]));
        assert_eq!(
            serde_json::json!(scopes(&["links:write"])),
            serde_json::json!(["links:write"])
        );
    }
}
