//! SHA-256, HMAC-SHA256 and comparison in constant time. aws-lc-rs implements all cryptography of the server's code.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};
pub use aws_lc_rs::hmac::{Context as HmacContext, Key as HmacKey};
use aws_lc_rs::hmac::{HMAC_SHA256, Tag, sign, verify};

pub fn sha256(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes)
}

/// A key of HMAC-SHA256.
pub fn hmac_key(secret: &[u8]) -> HmacKey {
    HmacKey::new(HMAC_SHA256, secret)
}

pub fn hmac(key: &HmacKey, message: &[u8]) -> Tag {
    sign(key, message)
}

/// Verifies an HMAC in constant time.
pub fn is_signed(key: &HmacKey, message: &[u8], signature: &[u8]) -> bool {
    verify(key, message, signature).is_ok()
}

/// Compares in constant time. Only the lengths may be learned from the time.
pub fn are_equal(first: &[u8], second: &[u8]) -> bool {
    verify_slices_are_equal(first, second).is_ok()
}
