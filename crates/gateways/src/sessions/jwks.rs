//! Tokens signed with a key that the provider publishes.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use hyper::Uri;
use jsonwebtoken::Algorithm;
use recado_domain::accounts::{Session, SessionError, SessionVerifier};
use recado_domain::shared::Clock;
use time::{Duration, OffsetDateTime};
use tokio::sync::Mutex;

use super::keys::{self, Key, KeyMatch};
use super::{Expected, header, session};
use crate::http::{GatewayRequest, Http};

/// The algorithms that a published key may be for.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// How long a fetch may take.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// The largest key set read, in bytes.
const CAP: usize = 64 * 1024;

/// The keys are fetched at most this often, however many tokens name unknown ones.
const PAUSE: Duration = Duration::minutes(1);

/// Exponential backoff while there are no keys at all, since no session can be verified: 1, 2, 4, ... seconds, at most
/// this.
const MAX_PAUSE_WITHOUT_KEYS: Duration = Duration::seconds(30);

/// Keys older than this are fetched again at the next token, so that a withdrawn one ceases to count.
const FRESH: Duration = Duration::minutes(10);

/// Proves sessions by RS256, ES256 and EdDSA with the keys at one address.
///
/// The keys are fetched at the first token, again when a token names an unknown one (at most once a minute), and when
/// they are older than ten minutes. A first fetch that fails is repeated with exponential backoff. While the provider
/// is down the old keys count.
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
    /// Locked while a fetch is under way, so that there is one at a time.
    fetches: Mutex<Fetches>,
}

#[derive(Clone, Copy, Default)]
struct Fetches {
    /// When the last one began.
    begun: Option<OffsetDateTime>,
    /// Failures in a row.
    failures: u32,
}

#[derive(Clone)]
enum CachedKeys {
    /// Never fetched with success; why.
    Nothing(String),
    Keys {
        keys: Arc<Vec<Key>>,
        since: OffsetDateTime,
    },
}

impl JwksVerifier {
    /// `url` is the address of the key set; it has to be https, but for a loopback host.
    pub fn new(http: Http, url: &str, expected: Expected, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let parsed = url
            .parse::<Uri>()
            .map_err(|error| format!("{url} is no address: {error}"))?;
        let secure = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => parsed.host().is_some_and(is_loopback),
            _ => false,
        };
        if !secure {
            return Err(format!(
                "{url} must be https: whoever can change the keys can sign in as anybody"
            ));
        }
        let cache = KeyCache {
            http,
            url: url.to_owned(),
            clock: Arc::clone(&clock),
            cached: RwLock::new(CachedKeys::Nothing("the keys were not fetched yet".into())),
            fetches: Mutex::default(),
        };
        Ok(Self {
            cache: Arc::new(cache),
            expected,
            clock,
        })
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
        let header = header(token)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(SessionError::Invalid);
        }
        let mut cached = self.cache.cached();
        for last in [false, true] {
            if let CachedKeys::Keys { keys, since } = &cached {
                match keys::find_key(keys, header.kid.as_deref(), header.alg) {
                    KeyMatch::Key(key, algorithm) => {
                        if self.clock.now() - *since >= FRESH {
                            self.cache.refresh_aside();
                        }
                        return session(token, (key, algorithm), &self.expected, self.clock.now());
                    }
                    KeyMatch::Never => return Err(SessionError::Invalid),
                    KeyMatch::Unknown => {}
                }
            }
            if !last {
                cached = self.cache.refreshed().await;
            }
        }
        Err(match cached {
            CachedKeys::Keys { .. } => SessionError::Invalid,
            CachedKeys::Nothing(why) => SessionError::Unavailable(why),
        })
    }
}

impl KeyCache {
    fn cached(&self) -> CachedKeys {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is cached after a fetch, if one is due or under way.
    async fn refreshed(self: &Arc<Self>) -> CachedKeys {
        // What a flood of unknown keys asks for most: nothing is under way and nothing due.
        if self.fetches.try_lock().is_ok_and(|fetches| !self.is_due(*fetches)) {
            return self.cached();
        }
        let (cache, had_keys) = (Arc::clone(self), self.has_keys());
        // A task of its own: a client that goes away must not take the fetch along that everybody waits for.
        if let Err(error) = tokio::spawn(async move { cache.refresh(had_keys).await }).await {
            tracing::error!(%error, "fetching the identity provider's keys failed");
        }
        self.cached()
    }

    /// Fetches without anybody waiting, unless a fetch is under way.
    fn refresh_aside(self: &Arc<Self>) {
        if self.fetches.try_lock().is_ok_and(|fetches| self.is_due(*fetches)) {
            let cache = Arc::clone(self);
            tokio::spawn(async move { cache.refresh(true).await });
        }
    }

    fn is_due(&self, fetches: Fetches) -> bool {
        let pause = match self.cached() {
            CachedKeys::Nothing(_) => pause_without_keys(fetches.failures),
            CachedKeys::Keys { .. } => PAUSE,
        };
        // The absolute difference: a clock that is set back must not stop the fetches.
        fetches
            .begun
            .is_none_or(|begun| (self.clock.now() - begun).abs() >= pause)
    }

    fn has_keys(&self) -> bool {
        matches!(self.cached(), CachedKeys::Keys { .. })
    }

    /// Fetches if that is due. Whoever comes while a fetch is under way waits for it here, and then finds none due; who
    /// `had_keys` not was waiting for the first ones.
    async fn refresh(&self, had_keys: bool) {
        let mut fetches = self.fetches.lock().await;
        if !self.is_due(*fetches) || (!had_keys && self.has_keys()) {
            return;
        }
        let now = self.clock.now();
        fetches.begun = Some(now);
        let fetched = self.fetch().await;
        fetches.failures = match fetched {
            Ok(_) => 0,
            Err(_) => fetches.failures.saturating_add(1),
        };
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        match (fetched, &*cached) {
            (Ok(keys), before) => {
                if matches!(before, CachedKeys::Nothing(_)) {
                    // Nobody had named an unknown key: whoever is the first to does not wait for it.
                    fetches.begun = None;
                }
                *cached = CachedKeys::Keys {
                    keys: Arc::new(keys),
                    since: now,
                }
            }
            (Err(why), CachedKeys::Nothing(_)) => *cached = CachedKeys::Nothing(why),
            (Err(why), CachedKeys::Keys { .. }) => {
                tracing::warn!(
                    why,
                    "the identity provider's keys cannot be fetched, the old ones are kept"
                );
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let request = GatewayRequest::get(&self.url).timeout(TIMEOUT).cap(CAP);
        let answer = self.http.call(request).await.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the key set was answered with HTTP {}", answer.status));
        }
        keys::read(&answer.body).map_err(|error| format!("the key set cannot be read: {error}"))
    }
}

fn pause_without_keys(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1);
    Duration::seconds(2_i64.saturating_pow(doublings)).min(MAX_PAUSE_WITHOUT_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_without_keys_doubles_up_to_its_maximum() {
        let seconds: Vec<_> = (1..=8)
            .map(|failures| pause_without_keys(failures).whole_seconds())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pause_without_keys(u32::MAX), MAX_PAUSE_WITHOUT_KEYS);
    }

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> OffsetDateTime {
            OffsetDateTime::UNIX_EPOCH
        }
    }

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        let made = |url| JwksVerifier::new(Http::new().unwrap(), url, Expected::default(), Arc::new(Stopped)).err();
        for good in [
            "https://id.example/jwks",
            "http://localhost:1/jwks",
            "http://127.0.0.9/j",
            "http://[::1]:8/j",
        ] {
            assert_eq!(made(good), None, "{good}");
        }
        for bad in [
            "http://id.example/jwks",
            "http://localhost.example/j",
            "ftp://localhost/j",
            "localhost/jwks",
            "",
        ] {
            assert!(made(bad).is_some(), "{bad}");
        }
        assert!(made("http://10.0.0.1/jwks").unwrap().contains("must be https"));
    }
}
