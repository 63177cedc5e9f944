//! The time zones of phone numbers as patterns, for the condition `time_zone`.

use std::sync::LazyLock;

use recado_domain::costs::COUNTRY_PREFIX;
use recado_domain::holds::zone_of_phone;
use recado_domain::shared::ZoneName;

/// Matches no phone number.
const NEVER: &str = "^x";

/// The shortest prefixes that decide on a zone, each with the zone. No two of them match one number.
static ZONES: LazyLock<Vec<(String, &'static str)>> = LazyLock::new(|| {
    let mut zones = Vec::new();
    collect("+", &mut zones);
    zones
});

/// Collects the prefixes that begin with `prefix`. Returns its zone if all of them have the same.
fn collect(prefix: &str, zones: &mut Vec<(String, &'static str)>) -> Option<&'static str> {
    if prefix.len() == COUNTRY_PREFIX {
        let zone = zone_of_phone(prefix);
        zones.extend(zone.map(|zone| (prefix.to_owned(), zone)));
        return zone;
    }
    let before = zones.len();
    let mut found = Vec::with_capacity(10);
    for digit in 0..10 {
        found.push(collect(&format!("{prefix}{digit}"), zones));
    }
    let first = found.first().copied().flatten()?;
    if found.iter().any(|zone| *zone != Some(first)) {
        return None;
    }
    zones.truncate(before);
    zones.push((prefix.to_owned(), first));
    Some(first)
}

/// Regular expressions for the phone numbers with one of these zones, and for those with any other zone.
pub(super) fn patterns(names: &[ZoneName]) -> [String; 2] {
    let is_named = |zone: &str| names.iter().flat_map(ZoneName::names).any(|name| name == zone);
    [true, false].map(|named| {
        let prefixes = ZONES.iter().filter(|(_, zone)| is_named(zone) == named);
        let digits: Vec<&str> = prefixes.map(|(prefix, _)| prefix.trim_start_matches('+')).collect();
        match digits.is_empty() {
            true => NEVER.to_owned(),
            false => format!("^\\+({})", digits.join("|")),
        }
    })
}

/// Whether the zone that counts for contact `c` of account `$1` is one of `names`, a JSON array with all names of each zone: its own, else that of its
/// phone number, else the account's.
pub(super) fn condition(names: &str, [named, other]: &[String; 2]) -> String {
    let is_named = |zone: &str| format!("{zone} = ANY (ARRAY (SELECT jsonb_array_elements_text({names})))");
    format!(
        "(CASE WHEN c.time_zone IS NOT NULL THEN {own}
           WHEN c.phone ~ {named} THEN true WHEN c.phone ~ {other} THEN false ELSE {account} END)",
        own = is_named("c.time_zone"),
        account = is_named("coalesce((SELECT s.timezone FROM account_settings s WHERE s.account_id = $1), 'UTC')"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_the_zone_of_their_phones() {
        for number in 1000..10_000 {
            let phone = format!("+{number}");
            let zones: Vec<&str> = ZONES
                .iter()
                .filter(|(prefix, _)| phone.starts_with(prefix))
                .map(|(_, zone)| *zone)
                .collect();
            assert_eq!(zones, zone_of_phone(&phone).into_iter().collect::<Vec<_>>(), "{phone}");
        }
    }

    #[test]
    fn patterns_name_zones_by_digits_alone() {
        let [named, other] = patterns(&["America/Manaus".parse().unwrap()]);
        assert_eq!(named, "^\\+(5592|5597)");
        assert!(other.contains("|551|") && other.contains("|33|"), "{other}");
        assert!(!other.contains("|559|") && !other.contains("|5592|"), "{other}");
        let [named, _] = patterns(&["America/New_York".parse().unwrap()]);
        assert_eq!(named, NEVER);
        let [by_alias, _] = patterns(&["Brazil/West".parse().unwrap()]);
        assert_eq!(by_alias, "^\\+(5592|5597)");
    }
}
