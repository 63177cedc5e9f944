//! The limit on the lifetime of API keys.

use time::Duration;

use super::values::{ConfigError, Source, invalid};

/// The lifetime that the API permits at most is ten years.
const MAX_DAYS: i64 = 3650;

/// `API_KEY_MAX_DAYS`. None: keys need not end.
pub(super) fn longest(source: Source<'_>) -> Result<Option<Duration>, ConfigError> {
    let name = "API_KEY_MAX_DAYS";
    let Some(text) = source(name) else { return Ok(None) };
    let days = text.trim().parse().ok().filter(|days| (1..=MAX_DAYS).contains(days));
    let days = days.ok_or_else(|| invalid(name, "must be a number of days, 1 to 3650"))?;
    Ok(Some(Duration::days(days)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_max_days_is_bounded() {
        let read = |text: &'static str| longest(&move |_| Some(text.to_owned()));
        assert_eq!(read("1"), Ok(Some(Duration::DAY)));
        assert_eq!(read(" 3650 "), Ok(Some(Duration::days(3650))));
        for wrong in ["0", "-1", "3651", "1.5", "90d", "never"] {
            assert_eq!(read(wrong).unwrap_err().variable, "API_KEY_MAX_DAYS", "{wrong}");
        }
        assert_eq!(longest(&|_| None), Ok(None));
    }
}
