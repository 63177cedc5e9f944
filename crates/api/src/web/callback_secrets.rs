//! How callbacks of other systems prove their sender.

use actix_web::HttpRequest;
use secrecy::{ExposeSecret as _, SecretString};

use crate::crypto::{are_equal, hmac_key, is_signed, sha256};
use crate::error::{ApiError, RefusalReason};

/// Verifies that WhatsApp sent a callback.
pub struct WhatsappCallbackSecrets {
    pub verify_token: Option<SecretString>,
    /// Several are valid at once. None: no callback is accepted.
    pub app_secrets: Vec<SecretString>,
}

impl WhatsappCallbackSecrets {
    /// Whether `token` is the verify token. False if none is configured.
    pub fn is_verify_token(&self, token: &str) -> bool {
        let expected = self.verify_token.as_ref();
        expected.is_some_and(|expected| are_equal(expected.expose_secret().as_bytes(), token.as_bytes()))
    }

    /// Parses the signature header, before the body is read. Fails if it is missing or malformed, or if no app secret is
    /// configured.
    pub fn signature_of(&self, request: &HttpRequest) -> Result<[u8; 32], ApiError> {
        let signature = signature(request).filter(|_| !self.app_secrets.is_empty());
        signature.ok_or_else(unsigned)
    }

    /// Checks that one of the app secrets signed the body.
    pub fn verify(&self, body: &[u8], signature: &[u8]) -> Result<(), ApiError> {
        // Every secret is tried, so that the time does not tell which one fits.
        let keys = self.app_secrets.iter();
        let keys = keys.map(|secret| hmac_key(secret.expose_secret().as_bytes()));
        match keys.filter(|key| is_signed(key, body, signature)).count() {
            0 => Err(unsigned()),
            _ => Ok(()),
        }
    }
}

fn unsigned() -> ApiError {
    ApiError::auth(RefusalReason::CallbackSignature, "The signature is missing or wrong")
}

/// Parses `X-Hub-Signature-256: sha256=<hex HMAC-SHA256 of the raw body>`; `None` if the header is malformed.
fn signature(request: &HttpRequest) -> Option<[u8; 32]> {
    let header = request.headers().get("x-hub-signature-256")?.to_str().ok()?;
    hex::decode(header.strip_prefix("sha256=")?).ok()?.try_into().ok()
}

/// Verifies that the payment gateway sent a callback.
pub struct PaymentCallbackToken(Option<SecretString>);

impl PaymentCallbackToken {
    /// The headers that may contain the token: the name in the published interface first, then the gateway's own.
    const HEADERS: [&'static str; 2] = ["gateway-access-token", "asaas-access-token"];

    /// Without a token every callback is answered with 500.
    pub fn new(token: Option<SecretString>) -> Self {
        Self(token)
    }

    /// Verifies the token by comparing hashes in constant time, so that timing reveals neither its content nor its
    /// length.
    pub fn verify(&self, request: &HttpRequest) -> Result<(), ApiError> {
        let Some(expected) = &self.0 else {
            return Err(ApiError::internal("PAYMENT_GATEWAY_WEBHOOK_TOKEN is not configured"));
        };
        let given = Self::HEADERS.iter().find_map(|name| request.headers().get(*name));
        let given = given.map(|value| value.as_bytes()).unwrap_or_default();
        let (given, expected) = (sha256(given), sha256(expected.expose_secret().as_bytes()));
        match are_equal(given.as_ref(), expected.as_ref()) {
            true => Ok(()),
            false => Err(ApiError::auth(
                RefusalReason::CallbackToken,
                "The gateway's token is missing or wrong",
            )),
        }
    }
}
