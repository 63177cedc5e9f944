//! The cookie of support mode: the account in which a platform administrator works, and the account to return to. The
//! cookie is signed and bound to its administrator, so that no other user can use it.

use actix_web::HttpRequest;
use actix_web::cookie::{Cookie, SameSite};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use recado_domain::administration::{SUPPORT_MODE_DURATION, SupportStarted};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, UserId, timestamp};
use schemars::JsonSchema;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::app_secret::{AppSecret, AppSecrets};
use crate::crypto::{HmacKey, hmac, hmac_key, is_signed};
use crate::web::cookies;

pub const SUPPORT_MODE: &str = "svc-support-mode";

/// The account in which a platform administrator works in support mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SupportMode {
    /// The id of that account.
    pub account_id: AccountId,
    /// The name of that account.
    #[schemars(example = &"Loja da Ana")]
    pub account_name: String,
    /// The id of the account that was active before, or null.
    pub original_account_id: Option<AccountId>,
    /// When support mode began.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub started_at: OffsetDateTime,
    /// When support mode ends automatically.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub expires_at: OffsetDateTime,
}

impl SupportMode {
    pub fn new(started: SupportStarted, original_account_id: Option<AccountId>) -> Self {
        Self {
            account_id: started.account_id,
            account_name: started.account_name,
            original_account_id,
            started_at: started.started_at,
            expires_at: started.expires_at,
        }
    }
}

/// The purpose of the signing key.
const SIGNING_PURPOSE: &str = "support cookie";

/// Signs and verifies the cookie.
pub struct SupportCookies {
    /// Derived from `APP_SECRET`.
    key: HmacKey,
    /// Verify only: derived from `APP_SECRET_PREVIOUS`, and from any secret as earlier versions did. A cookie is valid
    /// for `SUPPORT_MODE_DURATION`.
    earlier_keys: Vec<HmacKey>,
    secure: bool,
}

impl SupportCookies {
    pub fn new(secrets: &AppSecrets, secure: bool) -> anyhow::Result<Self> {
        let mut earlier_keys: Vec<_> = secrets.iter().map(unversioned_key).collect();
        for secret in &secrets.previous {
            earlier_keys.push(signing_key(secret)?);
        }
        Ok(Self {
            key: signing_key(&secrets.current)?,
            earlier_keys,
            secure,
        })
    }

    /// Creates the cookie of an administrator.
    pub fn write(&self, admin: UserId, mode: &SupportMode) -> Cookie<'static> {
        let content = serde_json::to_vec(&(admin, mode)).unwrap_or_default();
        let signature = hmac(&self.key, &content);
        let value = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&content),
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        );
        Cookie::build(SUPPORT_MODE, value)
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.secure)
            .max_age(SUPPORT_MODE_DURATION)
            .finish()
    }

    /// Creates a cookie that removes the current one.
    pub fn remove(&self) -> Cookie<'static> {
        let mut cookie = Cookie::build(SUPPORT_MODE, "")
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.secure)
            .finish();
        cookie.make_removal();
        cookie
    }

    /// Returns the support mode of this administrator. None: the cookie is missing, forged, of another user, or
    /// expired.
    pub fn read(&self, request: &HttpRequest, admin: UserId, now: OffsetDateTime) -> Option<SupportMode> {
        cookies::values(request, SUPPORT_MODE).find_map(|value| self.verify(&value, admin, now))
    }

    fn verify(&self, value: &str, admin: UserId, now: OffsetDateTime) -> Option<SupportMode> {
        let (content, signature) = value.split_once('.')?;
        let content = URL_SAFE_NO_PAD.decode(content).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut keys = std::iter::once(&self.key).chain(&self.earlier_keys);
        keys.find(|key| is_signed(key, &content, &signature))?;
        let (owner, mode): (UserId, SupportMode) = serde_json::from_slice(&content).ok()?;
        (owner == admin && now < mode.expires_at).then_some(mode)
    }
}

fn signing_key(secret: &AppSecret) -> anyhow::Result<HmacKey> {
    let key = secret.derive_key(SIGNING_PURPOSE)?;
    Ok(hmac_key(key.expose_secret()))
}

/// The key with which earlier versions signed.
fn unversioned_key(secret: &AppSecret) -> HmacKey {
    let root = hmac_key(secret.expose());
    hmac_key(hmac(&root, SUPPORT_MODE.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
    const ADMIN: UserId = UserId(Uuid::from_u128(1));

    fn mode() -> SupportMode {
        let started = SupportStarted {
            account_id: AccountId(Uuid::from_u128(2)),
            account_name: "Loja".into(),
            started_at: NOW,
            expires_at: NOW + SUPPORT_MODE_DURATION,
        };
        SupportMode::new(started, None)
    }

    fn signed_with(current: u8, previous: &[u8]) -> SupportCookies {
        let secret = |byte: u8| AppSecret::from([byte; 32]);
        let secrets = AppSecrets {
            current: secret(current),
            previous: previous.iter().map(|&byte| secret(byte)).collect(),
        };
        SupportCookies::new(&secrets, true).unwrap()
    }

    fn cookies() -> SupportCookies {
        signed_with(7, &[])
    }

    fn read(value: &str, admin: UserId, now: OffsetDateTime) -> Option<SupportMode> {
        let request = TestRequest::default().cookie(Cookie::new(SUPPORT_MODE, value.to_owned()));
        cookies().read(&request.to_http_request(), admin, now)
    }

    #[test]
    fn support_cookie_is_valid_for_its_administrator_four_hours() {
        let cookie = cookies().write(ADMIN, &mode());
        assert_eq!(read(cookie.value(), ADMIN, NOW), Some(mode()));
        let end = NOW + time::Duration::hours(4);
        assert!(read(cookie.value(), ADMIN, end - time::Duration::SECOND).is_some());
        assert_eq!(read(cookie.value(), ADMIN, end), None);
        assert_eq!(read(cookie.value(), UserId(Uuid::from_u128(3)), NOW), None);
        for flag in ["HttpOnly", "SameSite=Lax", "Secure", "Path=/", "Max-Age=14400"] {
            assert!(cookie.to_string().contains(flag), "{cookie}");
        }
    }

    #[test]
    fn forged_support_cookie_is_ignored() {
        let value = cookies().write(ADMIN, &mode()).value().to_owned();
        let (content, signature) = value.split_once('.').unwrap();
        let foreign = signed_with(8, &[]).write(ADMIN, &mode());
        for forged in [
            content,
            &format!("{content}."),
            &format!(".{signature}"),
            &format!("{content}A.{signature}"),
            foreign.value(),
            "",
            "%%%.%%%",
        ] {
            assert_eq!(read(forged, ADMIN, NOW), None, "{forged}");
        }
    }

    #[test]
    fn previous_secret_verifies_but_never_signs() {
        let request = |cookie: Cookie<'static>| TestRequest::default().cookie(cookie).to_http_request();
        let before = signed_with(7, &[]).write(ADMIN, &mode());
        let rotated = signed_with(8, &[6, 7]);
        assert_eq!(rotated.read(&request(before.clone()), ADMIN, NOW), Some(mode()));
        let after = rotated.write(ADMIN, &mode());
        assert_eq!(
            signed_with(8, &[]).read(&request(after.clone()), ADMIN, NOW),
            Some(mode())
        );
        assert_eq!(signed_with(7, &[]).read(&request(after), ADMIN, NOW), None);
        assert_eq!(signed_with(8, &[]).read(&request(before), ADMIN, NOW), None);
    }

    #[test]
    fn cookie_of_an_earlier_version_is_valid() {
        let content = serde_json::to_vec(&(ADMIN, mode())).unwrap();
        let signature = hmac(&unversioned_key(&[7; 32].into()), &content);
        let value = [&content, signature.as_ref()]
            .map(|part| URL_SAFE_NO_PAD.encode(part))
            .join(".");
        assert_eq!(read(&value, ADMIN, NOW), Some(mode()));
    }
}
