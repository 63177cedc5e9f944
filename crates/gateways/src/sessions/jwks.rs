//! Verifies tokens that are signed with a key that the provider publishes.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use hyper::Uri;
use jsonwebtoken::Algorithm;
use recado_domain::accounts::{Session, SessionError, SessionVerifier};
use recado_domain::shared::Clock;
use time::{Duration, OffsetDateTime};
use tokio::sync::Mutex;

use super::keys::{self, Key, KeyMatch};
use super::{Expected, parse_header, verify_token};
use crate::http::{GatewayRequest, Http};

/// Accepted signature algorithms.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// Time limit of a fetch of the key set.
const FETCH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Largest accepted key set, in bytes.
const MAX_KEY_SET_BYTES: usize = 64 * 1024;

/// Shortest time between two fetches, however many tokens name unknown keys.
const FETCH_INTERVAL: Duration = Duration::minutes(1);

/// Longest wait of the exponential backoff (1, 2, 4, ... seconds) while there are no keys. Without keys no session can
/// be verified, so the first fetch is retried sooner than `FETCH_INTERVAL`.
const MAX_BACKOFF_WITHOUT_KEYS: Duration = Duration::seconds(30);

/// Keys older than this are refreshed at the next token, so that a revoked key stops being accepted.
const REFRESH_AFTER: Duration = Duration::minutes(10);

/// Keys that could not be refreshed for so long verify nothing: the provider may have revoked them.
const MAX_STALENESS: Duration = Duration::hours(24);

/// Session verifier for RS256, ES256 and EdDSA with the key set at one URL.
///
/// Fetches the keys at the first token, when a token names an unknown key (at most once per `FETCH_INTERVAL`), and when
/// they are older than `REFRESH_AFTER`. Fetches are single-flight. A failed first fetch is retried with exponential
/// backoff. While the provider is down, the cached keys stay valid for `MAX_STALENESS`.
pub struct JwksVerifier {
    cache: Arc<KeyCache>,
    expected: Expected,
    clock: Arc<dyn Clock>,
}

struct KeyCache {
    http: Http,
    url: String,
    clock: Arc<dyn Clock>,
    cached: RwLock<CachedKeys>,
    /// Single-flight: locked during a fetch.
    fetches: Mutex<FetchState>,
}

#[derive(Clone, Copy, Default)]
struct FetchState {
    last_started_at: Option<OffsetDateTime>,
    consecutive_failures: u32,
}

#[derive(Clone)]
enum CachedKeys {
    /// No fetch has succeeded; the reason.
    Nothing(String),
    Keys {
        keys: Arc<Vec<Key>>,
        fetched_at: OffsetDateTime,
    },
}

impl JwksVerifier {
    /// `url` locates the key set. It must be https; http is allowed for a loopback host.
    pub fn new(http: Http, url: &str, expected: Expected, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let parsed = url
            .parse::<Uri>()
            .map_err(|error| format!("{url} is not a URL: {error}"))?;
        let is_secure = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => parsed.host().is_some_and(is_loopback),
            _ => false,
        };
        if !is_secure {
            return Err(format!(
                "{url} must be https: an attacker who replaces the keys can sign in as any user"
            ));
        }
        let cache = KeyCache {
            http,
            url: url.to_owned(),
            clock: Arc::clone(&clock),
            cached: RwLock::new(CachedKeys::Nothing("the keys have not been fetched yet".into())),
            fetches: Mutex::default(),
        };
        Ok(Self {
            cache: Arc::new(cache),
            expected,
            clock,
        })
    }
}

impl JwksVerifier {
    /// Fetches the key set, whatever is cached, and returns how many of its keys can verify a token.
    pub async fn fetch_key_count(&self) -> Result<usize, String> {
        Ok(self.cache.fetch().await?.len())
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[async_trait]
impl SessionVerifier for JwksVerifier {
    async fn verify(&self, token: &str) -> Result<Session, SessionError> {
        let header = parse_header(token)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(SessionError::Invalid);
        }
        let mut cached = self.cache.usable();
        for is_last_attempt in [false, true] {
            if let CachedKeys::Keys { keys, fetched_at } = &cached {
                match keys::find_key(keys, header.kid.as_deref(), header.alg) {
                    KeyMatch::Key(key, algorithm) => {
                        if self.clock.now() - *fetched_at >= REFRESH_AFTER {
                            self.cache.refresh_in_background();
                        }
                        let session = verify_token(token, (key, algorithm), &self.expected, self.clock.now())?;
                        // A cached session ends with the keys that verified it.
                        return Ok(Session {
                            expires_at: session.expires_at.min(*fetched_at + MAX_STALENESS),
                            ..session
                        });
                    }
                    KeyMatch::Never => return Err(SessionError::Invalid),
                    KeyMatch::Unknown => {}
                }
            }
            if !is_last_attempt {
                self.cache.fetch_if_due().await;
                cached = self.cache.usable();
            }
        }
        Err(match cached {
            CachedKeys::Keys { .. } => SessionError::Invalid,
            CachedKeys::Nothing(reason) => SessionError::Unavailable(reason),
        })
    }
}

impl KeyCache {
    fn cached(&self) -> CachedKeys {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cached keys, without those that are older than `MAX_STALENESS`.
    fn usable(&self) -> CachedKeys {
        match self.cached() {
            CachedKeys::Keys { fetched_at, .. } if self.clock.now() - fetched_at >= MAX_STALENESS => {
                CachedKeys::Nothing("the keys could not be refreshed for 24 hours".into())
            }
            cached => cached,
        }
    }

    /// Waits for a fetch that is due or in progress.
    async fn fetch_if_due(self: &Arc<Self>) {
        // Fast path for a flood of unknown keys: no fetch is in progress or due.
        if self.fetches.try_lock().is_ok_and(|fetches| !self.is_due(*fetches)) {
            return;
        }
        let (cache, had_keys) = (Arc::clone(self), self.has_keys());
        // In a separate task: a client that disconnects must not cancel the fetch that other requests wait for.
        if let Err(error) = tokio::spawn(async move { cache.refresh(had_keys).await }).await {
            tracing::error!(%error, "fetching the identity provider's keys failed");
        }
    }

    /// Stale-while-revalidate: starts a fetch if one is due and none is in progress. The request does not wait for it.
    fn refresh_in_background(self: &Arc<Self>) {
        if self.fetches.try_lock().is_ok_and(|fetches| self.is_due(*fetches)) {
            let cache = Arc::clone(self);
            tokio::spawn(async move { cache.refresh(true).await });
        }
    }

    fn is_due(&self, fetches: FetchState) -> bool {
        let interval = match self.usable() {
            CachedKeys::Nothing(_) => backoff_without_keys(fetches.consecutive_failures),
            CachedKeys::Keys { .. } => FETCH_INTERVAL,
        };
        // The absolute difference: a clock that is set back must not stop the fetches.
        fetches
            .last_started_at
            .is_none_or(|started| (self.clock.now() - started).abs() >= interval)
    }

    fn has_keys(&self) -> bool {
        matches!(self.cached(), CachedKeys::Keys { .. })
    }

    /// Fetches if a fetch is due. A caller that arrives during a fetch waits for the lock and then finds none due. A
    /// caller without `had_keys` waited for the first keys and needs no second fetch.
    async fn refresh(&self, had_keys: bool) {
        let mut fetches = self.fetches.lock().await;
        if !self.is_due(*fetches) || (!had_keys && self.has_keys()) {
            return;
        }
        let now = self.clock.now();
        fetches.last_started_at = Some(now);
        let result = self.fetch().await;
        fetches.consecutive_failures = match result {
            Ok(_) => 0,
            Err(_) => fetches.consecutive_failures.saturating_add(1),
        };
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        match (result, &*cached) {
            (Ok(keys), previous) => {
                if matches!(previous, CachedKeys::Nothing(_)) {
                    // The first fetch does not count for `FETCH_INTERVAL`: an unknown key may trigger a fetch at once.
                    fetches.last_started_at = None;
                }
                *cached = CachedKeys::Keys {
                    keys: Arc::new(keys),
                    fetched_at: now,
                }
            }
            (Err(reason), CachedKeys::Nothing(_)) => *cached = CachedKeys::Nothing(reason),
            (Err(reason), CachedKeys::Keys { .. }) => {
                tracing::warn!(
                    reason,
                    "the identity provider's keys cannot be fetched, the cached keys stay valid for 24 hours"
                );
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let request = GatewayRequest::get(&self.url)
            .timeout(FETCH_TIMEOUT)
            .max_response_bytes(MAX_KEY_SET_BYTES);
        let response = self.http.call(request).await.map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("the request for the key set returned HTTP {}", response.status));
        }
        keys::parse(&response.body).map_err(|error| format!("the key set cannot be read: {error}"))
    }
}

fn backoff_without_keys(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1);
    Duration::seconds(2_i64.saturating_pow(doublings)).min(MAX_BACKOFF_WITHOUT_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_without_keys_doubles_up_to_its_maximum() {
        let seconds: Vec<_> = (1..=8)
            .map(|failures| backoff_without_keys(failures).whole_seconds())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff_without_keys(u32::MAX), MAX_BACKOFF_WITHOUT_KEYS);
    }

    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> OffsetDateTime {
            OffsetDateTime::UNIX_EPOCH
        }
    }

    #[tokio::test]
    async fn jwks_url_must_be_https_or_loopback() {
        let error_of =
            |url| JwksVerifier::new(Http::new().unwrap(), url, Expected::default(), Arc::new(StoppedClock)).err();
        for good in [
            "https://id.example/jwks",
            "http://localhost:1/jwks",
            "http://127.0.0.9/j",
            "http://[::1]:8/j",
        ] {
            assert_eq!(error_of(good), None, "{good}");
        }
        for bad in [
            "http://id.example/jwks",
            "http://localhost.example/j",
            "ftp://localhost/j",
            "localhost/jwks",
            "",
        ] {
            assert!(error_of(bad).is_some(), "{bad}");
        }
        assert!(error_of("http://10.0.0.1/jwks").unwrap().contains("must be https"));
    }
}
