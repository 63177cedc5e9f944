//! Amounts of the gateway: decimal reais in JSON, integer cents internally, never a binary float.

use serde_json::Value;

/// Converts a JSON number with at most two decimals to cents.
pub(super) fn cents(value: &Value) -> Option<i64> {
    // A number prints as its shortest decimal text, which equals the text that was sent.
    let text = value.is_number().then(|| value.to_string())?;
    let (reais, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = match fraction.trim_end_matches('0') {
        "" => 0,
        one if one.len() == 1 => one.parse::<i64>().ok()? * 10,
        two if two.len() == 2 => two.parse().ok()?,
        _ => return None,
    };
    let whole = reais.parse::<i64>().ok()?.checked_mul(100)?;
    Some(if reais.starts_with('-') {
        whole - fraction
    } else {
        whole + fraction
    })
}

/// Converts cents (not negative) to a JSON number in reais.
pub(super) fn reais(cents: i64) -> Value {
    let text = match cents % 100 {
        0 => format!("{}", cents / 100),
        fraction => format!("{}.{fraction:02}", cents / 100),
    };
    text.parse().unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_convert_between_decimals_and_cents() {
        for (text, expected) in [
            ("97", 9700),
            ("97.0", 9700),
            ("19.9", 1990),
            ("0.05", 5),
            ("-1.5", -150),
        ] {
            assert_eq!(cents(&text.parse().unwrap()), Some(expected), "{text}");
        }
        assert_eq!(cents(&json!("19.90")), None, "text is no number");
        assert_eq!(cents(&"1.005".parse().unwrap()), None);
        assert_eq!(reais(1990).to_string(), "19.9");
        assert_eq!(reais(5).to_string(), "0.05");
        assert_eq!(reais(9700).to_string(), "97");
    }
}
