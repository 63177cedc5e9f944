//! The production implementations of the ports for time, shutdown and randomness.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_domain::shared::{Clock, Ids, Secrets, Shutdown, Timer};
use recado_domain::webhooks::Jitter;
use secrecy::SecretString;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The machine's clock, truncated to microseconds, the precision of PostgreSQL.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> OffsetDateTime {
        let now = OffsetDateTime::now_utc();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }
}

/// The timer of the runtime.
pub struct SystemTimer;

#[async_trait]
impl Timer for SystemTimer {
    async fn sleep(&self, duration: time::Duration) {
        tokio::time::sleep(duration.try_into().unwrap_or_default()).await;
    }
}

/// The stop of this process: the token is cancelled when it begins.
pub struct SystemShutdown(pub CancellationToken);

#[async_trait]
impl Shutdown for SystemShutdown {
    fn is_stopping(&self) -> bool {
        self.0.is_cancelled()
    }

    async fn stopped(&self) {
        self.0.cancelled().await;
    }
}

/// Generates version 7 UUIDs.
pub struct SystemIds;

impl Ids for SystemIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Random tokens from the operating system.
pub struct SystemSecrets;

impl Secrets for SystemSecrets {
    fn token(&self, bytes: usize) -> SecretString {
        let mut random = vec![0; bytes];
        if aws_lc_rs::rand::fill(&mut random).is_err() {
            // Without randomness an attacker could guess every secret, so no response of this process is safe.
            std::process::abort();
        }
        SecretString::from(URL_SAFE_NO_PAD.encode(random))
    }
}

/// Random jitter from the operating system, from -1 to 1.
pub struct SystemJitter;

impl Jitter for SystemJitter {
    fn spread(&self) -> f64 {
        let mut random = [0; 4];
        // Without randomness there is no jitter. No secret depends on it.
        match aws_lc_rs::rand::fill(&mut random) {
            Ok(()) => f64::from(i32::from_le_bytes(random)) / f64::from(i32::MAX),
            Err(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn secret_tokens_have_their_length_and_differ() {
        let tokens: std::collections::HashSet<String> = (0..100)
            .map(|_| SystemSecrets.token(32).expose_secret().to_owned())
            .collect();
        assert_eq!(tokens.len(), 100);
        for token in tokens {
            assert_eq!(URL_SAFE_NO_PAD.decode(&token).unwrap().len(), 32, "{token}");
        }
    }
}
