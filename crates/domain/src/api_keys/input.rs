//! Validation of the fields that a caller sets on a key.

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};

use super::{ApiKey, networks};
use crate::shared::{FieldErrors, KeyScope, KeyScopes, TemplateId, text, timestamp};

/// Maximum length of a name, in characters.
const NAME_CHARS: usize = 100;

/// Maximum number of scopes, and of networks, of a key.
const MAX_SCOPES: usize = 50;
const MAX_NETWORKS: usize = 50;

/// How far ahead a key may expire. `MIN_LIFETIME` is a minute less the time that a request may take to arrive.
const MIN_LIFETIME: Duration = Duration::seconds(59);
const MAX_YEARS: i32 = 10;

/// The days of `MAX_YEARS`, for February 29th.
const MAX_DAYS: i64 = 3652;

/// Unchecked fields of a key. An absent field leaves its value; for a new key it means the default.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyInput {
    pub name: Option<String>,
    pub scopes: Option<Vec<String>>,
    /// `Some(None)`: the key does not expire.
    pub expires_at: Option<Option<OffsetDateTime>>,
    pub allowed_cidrs: Option<Vec<String>>,
}

/// Checked fields of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyFields {
    pub(super) name: Option<String>,
    pub(super) scopes: Option<KeyScopes>,
    pub(super) expires_at: Option<Option<OffsetDateTime>>,
    pub(super) allowed_cidrs: Option<Vec<IpNet>>,
    /// The templates that scopes name, each with its position in the input. The account MUST have them.
    pub(super) templates: Vec<(usize, TemplateId)>,
}

/// Checks every field. `longest` is the operator's limit on the lifetime of keys: a key without an end gets the latest
/// one.
pub(super) fn check(
    input: ApiKeyInput,
    now: OffsetDateTime,
    longest: Option<Duration>,
) -> Result<KeyFields, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = input.name.map(|name| text::sanitize(&name));
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", "must have 1 to 100 characters");
    }
    let (scopes, templates) = match input.scopes {
        Some(texts) => check_scopes(&texts, &mut errors),
        None => (None, vec![]),
    };
    let allowed_cidrs = input.allowed_cidrs.map(|texts| check_networks(&texts, &mut errors));
    let expires_at = input.expires_at.map(|at| match (at, longest) {
        (None, Some(longest)) => Some(now + longest),
        (at, _) => at,
    });
    if let Some(at) = expires_at.flatten() {
        check_expiry(at, now, longest, &mut errors);
    }
    errors.into_result()?;
    Ok(KeyFields {
        name,
        scopes,
        expires_at,
        allowed_cidrs,
        templates,
    })
}

fn check_scopes(texts: &[String], errors: &mut FieldErrors) -> (Option<KeyScopes>, Vec<(usize, TemplateId)>) {
    if texts.is_empty() || texts.len() > MAX_SCOPES {
        errors.add("scopes", "must have 1 to 50 scopes");
        return (None, vec![]);
    }
    let (mut scopes, mut templates) = (vec![], vec![]);
    for (position, text) in texts.iter().enumerate() {
        match text.parse::<KeyScope>() {
            Ok(scope) => {
                if let KeyScope::Trigger(template) = scope {
                    templates.push((position, template));
                }
                scopes.push(scope);
            }
            Err(problem) => errors.add(format!("scopes[{position}]"), problem),
        }
    }
    (Some(KeyScopes::new(scopes)), templates)
}

fn check_networks(texts: &[String], errors: &mut FieldErrors) -> Vec<IpNet> {
    if texts.len() > MAX_NETWORKS {
        errors.add("allowed_cidrs", "must have at most 50 networks");
        return vec![];
    }
    let mut allowed = vec![];
    for (position, text) in texts.iter().enumerate() {
        match networks::parse_network(text) {
            Some(network) if allowed.contains(&network) => {}
            Some(network) => allowed.push(network),
            None => errors.add(
                format!("allowed_cidrs[{position}]"),
                "must be an IPv4 or IPv6 network like 203.0.113.0/24 or 2001:db8::/32",
            ),
        }
    }
    allowed
}

fn check_expiry(at: OffsetDateTime, now: OffsetDateTime, longest: Option<Duration>, errors: &mut FieldErrors) {
    let ten_years = now.replace_year(now.year() + MAX_YEARS);
    let latest = ten_years.unwrap_or(now + Duration::days(MAX_DAYS));
    if at - now <= MIN_LIFETIME || at > latest {
        errors.add("expires_at", "must be 1 minute to 10 years ahead");
    } else if let Some(longest) = longest.filter(|longest| at - now > *longest) {
        let days = longest.whole_days();
        errors.add(
            "expires_at",
            format!("must be at most {days} days ahead, the limit of this server"),
        );
    }
}

/// The changed fields of a key with their new values, for the audit log.
pub(super) fn differences(before: &ApiKey, after: &ApiKey) -> Value {
    let mut changes = Map::new();
    let expires_at = |key: &ApiKey| key.expires_at.map(timestamp::format);
    for (field, differs, value) in [
        ("name", before.name != after.name, json!(after.name)),
        ("scopes", before.scopes != after.scopes, json!(after.scopes)),
        (
            "expires_at",
            expires_at(before) != expires_at(after),
            json!(expires_at(after)),
        ),
        (
            "allowed_cidrs",
            before.allowed_cidrs != after.allowed_cidrs,
            json!(after.allowed_cidrs),
        ),
    ] {
        if differs {
            changes.insert(field.to_owned(), value);
        }
    }
    changes.into()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn invalid_fields(input: ApiKeyInput, longest: Option<Duration>) -> Vec<String> {
        match check(input, NOW, longest) {
            Ok(_) => vec![],
            Err(errors) => errors.0.into_keys().collect(),
        }
    }

    fn with_scopes(texts: &[&str]) -> ApiKeyInput {
        ApiKeyInput {
            scopes: Some(texts.iter().map(|text| (*text).to_owned()).collect()),
            ..ApiKeyInput::default()
        }
    }

    fn with_expiry(at: OffsetDateTime) -> ApiKeyInput {
        ApiKeyInput {
            expires_at: Some(Some(at)),
            ..ApiKeyInput::default()
        }
    }

    #[test]
    fn unknown_scope_is_named_by_its_position() {
        let wrong = with_scopes(&["contacts:read", "contacts:all", "links:read", "*:read"]);
        assert_eq!(invalid_fields(wrong, None), ["scopes[1]", "scopes[3]"]);
        assert_eq!(invalid_fields(with_scopes(&[]), None), ["scopes"]);
        assert_eq!(invalid_fields(with_scopes(&["*"; 50]), None), Vec::<String>::new());
        assert_eq!(invalid_fields(with_scopes(&["*"; 51]), None), ["scopes"]);
        let template = Uuid::from_u128(7);
        let trigger = format!("trigger:{template}");
        let fields = check(with_scopes(&["*", "*", &trigger]), NOW, None).unwrap();
        assert_eq!(fields.templates, [(2, template.into())]);
        assert_eq!(fields.scopes.unwrap().texts(), ["*", &trigger]);
    }

    #[test]
    fn network_is_named_by_its_position() {
        let with_networks = |texts: Vec<String>| ApiKeyInput {
            allowed_cidrs: Some(texts),
            ..ApiKeyInput::default()
        };
        let wrong = with_networks(vec!["10.0.0.0/8".into(), "10.0.0.0/40".into()]);
        assert_eq!(invalid_fields(wrong, None), ["allowed_cidrs[1]"]);
        let many = |count: usize| with_networks((0..count).map(|n| format!("10.0.{n}.0/24")).collect());
        assert_eq!(invalid_fields(many(50), None), Vec::<String>::new());
        assert_eq!(invalid_fields(many(51), None), ["allowed_cidrs"]);
        let none = check(with_networks(vec![]), NOW, None).unwrap();
        assert_eq!(none.allowed_cidrs, Some(vec![]));
    }

    #[test]
    fn expiry_is_a_minute_to_ten_years_ahead() {
        for (ahead, is_valid) in [
            (Duration::seconds(-1), false),
            (Duration::ZERO, false),
            (Duration::seconds(59), false),
            (Duration::minutes(1), true),
            (Duration::days(3653), true),
            (Duration::days(3653) + Duration::SECOND, false),
        ] {
            assert_eq!(
                invalid_fields(with_expiry(NOW + ahead), None).is_empty(),
                is_valid,
                "{ahead}"
            );
        }
        let leap_day = datetime!(2028-02-29 12:00 UTC);
        let check_at = |at| check(with_expiry(at), leap_day, None).is_ok();
        assert!(check_at(datetime!(2038-02-28 12:00 UTC)) && !check_at(datetime!(2038-03-01 12:00 UTC)));
    }

    #[test]
    fn longest_lifetime_bounds_expiry_and_replaces_never() {
        let longest = Some(Duration::days(90));
        assert_eq!(
            invalid_fields(with_expiry(NOW + Duration::days(90)), longest),
            Vec::<String>::new()
        );
        assert_eq!(
            invalid_fields(with_expiry(NOW + Duration::days(91)), longest),
            ["expires_at"]
        );
        let never = ApiKeyInput {
            expires_at: Some(None),
            ..ApiKeyInput::default()
        };
        let fields = check(never.clone(), NOW, longest).unwrap();
        assert_eq!(fields.expires_at, Some(Some(NOW + Duration::days(90))));
        assert_eq!(check(never, NOW, None).unwrap().expires_at, Some(None));
        assert_eq!(check(ApiKeyInput::default(), NOW, longest).unwrap().expires_at, None);
    }
}
