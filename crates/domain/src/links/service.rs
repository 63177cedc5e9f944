//! The use cases of links.

use std::sync::Arc;

use secrecy::ExposeSecret as _;

use super::clicks::MAX_BATCH;
use super::{Link, LinkError, LinkStore, LinkTarget, PendingClicks};
use crate::shared::{
    CampaignId, Clock, ContactId, CursorPage, CursorQuery, FieldErrors, Ids, Secrets, StoreError, Tenant,
};

/// The random bytes of a code. They make it impossible to find links by guessing.
const CODE_BYTES: usize = 9;

/// The longest code that is looked up, in bytes.
const MAX_CODE_BYTES: usize = 64;

/// The longest URL that all browsers follow.
const URL_CHARS: usize = 2000;

/// Lists, creates and follows links.
pub struct Links {
    store: Arc<dyn LinkStore>,
    pending: Arc<PendingClicks>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    secrets: Arc<dyn Secrets>,
    public_url: String,
}

impl Links {
    pub fn new(
        store: Arc<dyn LinkStore>,
        pending: Arc<PendingClicks>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        secrets: Arc<dyn Secrets>,
        public_url: &str,
    ) -> Self {
        Self {
            store,
            pending,
            clock,
            ids,
            secrets,
            public_url: public_url.trim_end_matches('/').to_owned(),
        }
    }

    fn short_url(&self, code: &str) -> String {
        format!("{}/r/{code}", self.public_url)
    }

    /// The account's links, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Link>, LinkError> {
        let mut page = self.store.list(tenant.account_id, query).await?;
        for link in &mut page.data {
            link.short_url = self.short_url(&link.short_code);
        }
        Ok(page)
    }

    /// Creates a link to a web page.
    pub async fn create(
        &self,
        tenant: &Tenant,
        original_url: &str,
        campaign_id: Option<CampaignId>,
        contact_id: Option<ContactId>,
    ) -> Result<Link, LinkError> {
        let original_url = original_url.trim();
        if !is_web_address(original_url) {
            let message = format!("must be an http or https URL of at most {URL_CHARS} characters");
            return Err(FieldErrors::one("original_url", message).into());
        }
        let short_code = self.secrets.token(CODE_BYTES).expose_secret().to_owned();
        let link = Link {
            id: self.ids.next().into(),
            short_url: self.short_url(&short_code),
            short_code,
            original_url: original_url.to_owned(),
            campaign_id,
            contact_id,
            clicks: 0,
            created_at: self.clock.now(),
        };
        self.store.insert(tenant.account_id, &link).await?;
        Ok(link)
    }

    /// The URL to redirect to. The click is counted in memory; [`write_clicks`](Self::write_clicks) writes it.
    pub async fn follow(&self, short_code: &str) -> Result<String, LinkError> {
        let target = self.target(short_code).await?;
        self.pending.add(&target, self.clock.now());
        Ok(target.original_url)
    }

    /// The URL to redirect to, for a program that asks without following.
    pub async fn target_url(&self, short_code: &str) -> Result<String, LinkError> {
        Ok(self.target(short_code).await?.original_url)
    }

    async fn target(&self, short_code: &str) -> Result<LinkTarget, LinkError> {
        match is_code(short_code) {
            true => self.store.target(short_code).await?.ok_or(LinkError::NotFound),
            false => Err(LinkError::NotFound),
        }
    }

    /// Writes one batch of pending clicks. True if more clicks wait. MUST NOT run concurrently.
    pub async fn write_clicks(&self) -> Result<bool, StoreError> {
        let Some(batch) = self.pending.next_batch() else {
            return Ok(false);
        };
        let deferred = self.store.add_clicks(&batch).await?;
        self.pending.complete(&batch, &deferred);
        Ok(batch.clicks.len() == MAX_BATCH && deferred.is_empty())
    }
}

/// Whether a text can be a code: base64url.
fn is_code(text: &str) -> bool {
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_CODE_BYTES).contains(&text.len()) && text.bytes().all(is_base64url)
}

/// Whether a URL is valid in a `Location` header and opens a web page rather than a program.
fn is_web_address(url: &str) -> bool {
    let lower = url.to_ascii_lowercase();
    let rest = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
    let host = rest
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    let printable = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    printable && !host.is_empty() && !host.starts_with(':') && url.len() <= URL_CHARS
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{LinkTarget, MockLinkStore};
    use super::*;
    use crate::shared::{AccountId, LinkId, MockClock, MockIds, MockSecrets, Role, UserId};

    fn links(store: MockLinkStore) -> Links {
        let (mut clock, mut ids, mut secrets) = (MockClock::new(), MockIds::new(), MockSecrets::new());
        clock.expect_now().returning(|| datetime!(2026-03-01 12:00 UTC));
        ids.expect_next().returning(|| Uuid::from_u128(1));
        secrets
            .expect_token()
            .withf(|bytes| *bytes >= 8)
            .returning(|_| "c0de".to_owned().into());
        Links::new(
            Arc::new(store),
            Arc::new(PendingClicks::new(Uuid::nil())),
            Arc::new(clock),
            Arc::new(ids),
            Arc::new(secrets),
            "https://api.example/",
        )
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    #[tokio::test]
    async fn link_target_must_be_a_web_url() {
        let mut store = MockLinkStore::new();
        store.expect_insert().returning(|_, _| Ok(()));
        let links = links(store);
        for invalid_url in [
            "",
            "loja.example",
            "javascript:alert(1)",
            "ftp://a.example",
            "https://",
            "http://:80/",
            "https:///x",
            "https://a.example/\r\nSet-Cookie: x",
            "https://a.example/ b",
            "data:text/html,x",
            "https://é.example",
        ] {
            assert!(
                matches!(
                    links.create(&tenant(), invalid_url, None, None).await,
                    Err(LinkError::Invalid(_))
                ),
                "{invalid_url}"
            );
        }
        let long = format!("https://a.example/{}", "x".repeat(2000));
        assert!(links.create(&tenant(), &long, None, None).await.is_err());
        let made = links
            .create(&tenant(), " HTTPS://loja.example/a?b=%20#c ", None, None)
            .await
            .unwrap();
        assert_eq!(made.original_url, "HTTPS://loja.example/a?b=%20#c");
        assert_eq!(made.short_url, "https://api.example/r/c0de");
    }

    #[tokio::test]
    async fn unknown_link_code_is_not_found() {
        let mut store = MockLinkStore::new();
        store.expect_target().times(1).returning(|_| Ok(None));
        let links = links(store);
        assert!(matches!(links.follow("x").await, Err(LinkError::NotFound)));
        // A text that cannot be a code is not looked up.
        for text in ["", "a b", "é", "../x", &"x".repeat(65)] {
            assert!(matches!(links.follow(text).await, Err(LinkError::NotFound)), "{text}");
        }
    }

    #[tokio::test]
    async fn click_batch_is_retried_until_applied() {
        let mut store = MockLinkStore::new();
        let target = LinkTarget {
            account_id: tenant().account_id,
            link_id: LinkId(Uuid::from_u128(3)),
            original_url: "https://loja.example/".into(),
        };
        let link = target.link_id;
        store.expect_target().returning(move |_| Ok(Some(target.clone())));
        let mut order = mockall::Sequence::new();
        let outcomes = [Err(StoreError::Unavailable("gone".into())), Ok(vec![link]), Ok(vec![])];
        for (outcome, number) in outcomes.into_iter().zip([1, 1, 2]) {
            store
                .expect_add_clicks()
                .withf(move |batch| batch.number == number && batch.clicks.len() == 1 && batch.clicks[0].1 == 2)
                .times(1)
                .in_sequence(&mut order)
                .return_once(move |_| outcome);
        }
        let links = links(store);
        for _ in 0..2 {
            assert_eq!(links.follow("x").await.unwrap(), "https://loja.example/");
        }
        assert!(links.write_clicks().await.is_err());
        for _ in 0..3 {
            assert!(!links.write_clicks().await.unwrap());
        }
        assert!(links.pending.is_empty());
    }
}
