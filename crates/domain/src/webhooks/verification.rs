//! Verifies the signature of calls at inbound endpoints according to Standard Webhooks 1.0.0.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use time::OffsetDateTime;

use super::SecretBytes;

/// The largest clock difference between the caller and Recado, in seconds.
const TOLERANCE: i64 = 300;

/// The longest `webhook-id` in bytes. Recado stores it to detect repeated calls.
const ID_BYTES: usize = 255;

/// The length of an HMAC-SHA256 signature.
const SIGNATURE_BYTES: usize = 32;

/// Why the verification of a call failed. The developer of the calling system reads these messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unverified {
    /// A header is missing or malformed.
    #[error("the headers webhook-id, webhook-timestamp and webhook-signature are required")]
    Headers,
    #[error("webhook-timestamp is more than 5 minutes from now")]
    Timestamp,
    #[error("webhook-signature does not match the endpoint's secret and this body")]
    Signature,
}

/// The parsed headers of a call whose signature is still unchecked.
struct SignedHeaders<'a> {
    id: &'a str,
    timestamp: i64,
    signatures: Vec<Vec<u8>>,
}

/// Rejects a call by the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` alone, before its body is
/// read.
pub fn check_headers(headers: [Option<&str>; 3], now: OffsetDateTime) -> Result<(), Unverified> {
    parse_headers(headers, now).map(|_| ())
}

/// Verifies the signatures in the three headers against every valid secret. Returns the `webhook-id`.
pub fn verify<'a>(
    secrets: &[SecretBytes],
    headers: [Option<&'a str>; 3],
    body: &[u8],
    now: OffsetDateTime,
) -> Result<&'a str, Unverified> {
    let signed = parse_headers(headers, now)?;
    let verified = signed.signatures.iter().any(|signature| {
        secrets
            .iter()
            .any(|secret| secret.verifies(signature, signed.id, signed.timestamp, body))
    });
    if verified {
        Ok(signed.id)
    } else {
        Err(Unverified::Signature)
    }
}

fn parse_headers(headers: [Option<&str>; 3], now: OffsetDateTime) -> Result<SignedHeaders<'_>, Unverified> {
    let [Some(id), Some(timestamp), Some(signatures)] = headers else {
        return Err(Unverified::Headers);
    };
    let is_valid_id = |id: &str| (1..=ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let timestamp: i64 = timestamp.parse().map_err(|_| Unverified::Headers)?;
    if !is_valid_id(id) {
        return Err(Unverified::Headers);
    }
    if now.unix_timestamp().abs_diff(timestamp) > TOLERANCE.unsigned_abs() {
        return Err(Unverified::Timestamp);
    }
    let entries = signatures.split(' ').filter_map(|entry| entry.strip_prefix("v1,"));
    let decoded = entries.filter_map(|signature| STANDARD.decode(signature).ok());
    let signatures: Vec<_> = decoded.filter(|signature| signature.len() == SIGNATURE_BYTES).collect();
    if signatures.is_empty() {
        return Err(Unverified::Signature);
    }
    Ok(SignedHeaders {
        id,
        timestamp,
        signatures,
    })
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use time::Duration;

    use super::super::sign;
    use super::*;

    const BODY: &[u8] = br#"{"type":"test.ping"}"#;

    fn secret(byte: u8) -> SecretBytes {
        SecretBytes::from_hex(&SecretString::from(hex::encode([byte; 32]))).unwrap()
    }

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_767_323_045).unwrap()
    }

    fn verify_call(id: &str, timestamp: &str, signatures: &str, body: &[u8]) -> Result<String, Unverified> {
        let secrets = [secret(1), secret(2)];
        verify(&secrets, [Some(id), Some(timestamp), Some(signatures)], body, now()).map(str::to_owned)
    }

    #[test]
    fn verification_accepts_any_signature_of_any_secret() {
        for signer in [1, 2] {
            let good = sign(&[secret(signer)], "msg_1", 1_767_323_045, BODY);
            for signatures in [
                good.clone(),
                format!("v1,AAAA v1a,xyz {good}"),
                format!("{good} v1,no-base64"),
            ] {
                let verified = verify_call("msg_1", "1767323045", &signatures, BODY);
                assert_eq!(verified, Ok("msg_1".into()), "{signatures}");
            }
        }
    }

    #[test]
    fn verification_rejects_any_modification() {
        let good = sign(&[secret(1)], "msg_1", 1_767_323_045, BODY);
        let foreign = sign(&[secret(3)], "msg_1", 1_767_323_045, BODY);
        let short = good.get(..good.len() - 4).unwrap();
        for (id, timestamp, signatures, body) in [
            ("msg_2", "1767323045", good.as_str(), BODY),
            ("msg_1", "1767323046", &good, BODY),
            ("msg_1", "1767323045", &good, b"{}"),
            ("msg_1", "1767323045", &foreign, BODY),
            ("msg_1", "1767323045", &good.replace("v1,", "v2,"), BODY),
            ("msg_1", "1767323045", short, BODY),
            ("msg_1", "1767323045", "v1,", BODY),
            ("msg_1", "1767323045", "", BODY),
        ] {
            assert_eq!(
                verify_call(id, timestamp, signatures, body),
                Err(Unverified::Signature),
                "{id} {timestamp} {signatures}"
            );
        }
        let without_secrets = verify(&[], [Some("msg_1"), Some("1767323045"), Some(&good)], BODY, now());
        assert_eq!(without_secrets, Err(Unverified::Signature));
    }

    #[test]
    fn verification_tolerates_five_minutes_of_clock_skew() {
        for (seconds, verified) in [(-301, false), (-300, true), (0, true), (300, true), (301, false)] {
            let at = (now() + Duration::seconds(seconds)).unix_timestamp();
            let signatures = sign(&[secret(1)], "msg_1", at, BODY);
            let result = verify_call("msg_1", &at.to_string(), &signatures, BODY);
            let expected = if verified {
                Ok("msg_1".into())
            } else {
                Err(Unverified::Timestamp)
            };
            assert_eq!(result, expected, "{seconds}");
        }
    }

    #[test]
    fn verification_reports_missing_and_malformed_headers() {
        let good = sign(&[secret(1)], "msg_1", 1_767_323_045, BODY);
        let all = [Some("msg_1"), Some("1767323045"), Some(good.as_str())];
        for missing in 0..3 {
            let mut headers = all;
            headers[missing] = None;
            assert_eq!(verify(&[secret(1)], headers, BODY, now()), Err(Unverified::Headers));
        }
        let long = "x".repeat(256);
        for (id, timestamp) in [
            ("", "1767323045"),
            ("a b", "1767323045"),
            (&long, "1767323045"),
            ("msg_1", "now"),
            ("msg_1", ""),
        ] {
            assert_eq!(
                verify_call(id, timestamp, &good, BODY),
                Err(Unverified::Headers),
                "{id} {timestamp}"
            );
        }
        for extreme in [i64::MIN, i64::MAX] {
            assert_eq!(
                verify_call("msg_1", &extreme.to_string(), &good, BODY),
                Err(Unverified::Timestamp)
            );
        }
    }
}
