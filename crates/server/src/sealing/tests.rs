//! The format of sealed values: what opens where, under which key, and what does not.

use recado_domain::shared::{AccountId, ProfileId, WebhookId};
use uuid::Uuid;

use super::*;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
const OTHER_ACCOUNT: AccountId = AccountId(Uuid::from_u128(2));
const ROW: Uuid = Uuid::from_u128(3);

fn cipher(current: u8, previous: &[u8]) -> AppCipher {
    let secrets = AppSecrets {
        current: [current; 32].into(),
        previous: previous.iter().map(|&byte| [byte; 32].into()).collect(),
    };
    AppCipher::new(&secrets).unwrap()
}

fn token_context() -> SealContext {
    SealContext::whatsapp_token(ACCOUNT, ProfileId(ROW))
}

/// A value in the format of earlier versions.
fn unversioned(secret: u8, text: &str) -> Sealed {
    let key = RandomizedNonceKey::new(&AES_256_GCM, &[secret; 32]).unwrap();
    let mut text = text.as_bytes().to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut text).unwrap();
    Sealed([nonce.as_ref().as_slice(), &text].concat())
}

fn opened(cipher: &AppCipher, sealed: &Sealed, context: &SealContext) -> Result<String, UnsealError> {
    let text = cipher.try_open(sealed, context)?;
    Ok(text.expose_secret().to_owned())
}

#[test]
fn sealed_value_opens_only_unchanged_and_under_its_key() {
    let (cipher, context) = (cipher(7, &[]), token_context());
    let secret = SecretString::from("EAAG-token");
    let sealed = cipher.seal(&secret, &context);
    assert_eq!(opened(&cipher, &sealed, &context).unwrap(), "EAAG-token");
    assert_ne!(cipher.seal(&secret, &context), sealed);
    assert!(!sealed.0.windows(4).any(|bytes| bytes == b"EAAG"));
    for position in 0..sealed.0.len() {
        let mut changed = sealed.clone();
        changed.0[position] ^= 1;
        assert!(cipher.open(&changed, &context).is_none(), "byte {position}");
        let cut = Sealed(sealed.0[..position].to_vec());
        assert!(cipher.open(&cut, &context).is_none(), "{position} bytes");
    }
}

#[test]
fn sealed_value_names_version_key_and_nonce() {
    let cipher = cipher(7, &[]);
    let sealed = cipher.seal(&SecretString::from("text"), &token_context());
    let key_id = AppSecret::from([7; 32]).key_id().unwrap();
    let marker = format!("RSV1|{key_id}|").into_bytes();
    assert_eq!((marker.len(), cipher.current_marker()), (MARKER_BYTES, marker.clone()));
    assert!(sealed.0.starts_with(&marker));
    assert_eq!(sealed.0.len(), MARKER_BYTES + NONCE_LEN + "text".len() + 16);
}

#[test]
fn value_of_another_row_table_or_account_fails() {
    let cipher = cipher(7, &[]);
    let sealed = cipher.seal(&SecretString::from("EAAG-token"), &token_context());
    for elsewhere in [
        SealContext::whatsapp_token(OTHER_ACCOUNT, ProfileId(ROW)),
        SealContext::whatsapp_token(ACCOUNT, ProfileId(Uuid::from_u128(4))),
        SealContext::webhook_secret(ACCOUNT, WebhookId(ROW)),
        SealContext::new(SealPurpose::QueuedMail, ACCOUNT, ROW),
    ] {
        assert_eq!(
            opened(&cipher, &sealed, &elsewhere),
            Err(UnsealError::WrongPlace),
            "{elsewhere:?}"
        );
        assert_eq!(cipher.reseal(&sealed, &elsewhere), Err(UnsealError::WrongPlace));
    }
}

#[test]
fn previous_secret_opens_but_never_seals() {
    let context = token_context();
    let before = cipher(7, &[]).seal(&SecretString::from("token"), &context);
    let rotated = cipher(8, &[6, 7]);
    assert_eq!(opened(&rotated, &before, &context).unwrap(), "token");
    let after = rotated.seal(&SecretString::from("token"), &context);
    assert!(cipher(7, &[]).open(&after, &context).is_none());
    assert_eq!(opened(&cipher(8, &[]), &after, &context).unwrap(), "token");
}

#[test]
fn unknown_key_is_named_in_the_error() {
    let (context, key_id) = (token_context(), AppSecret::from([7; 32]).key_id().unwrap());
    let sealed = cipher(7, &[]).seal(&SecretString::from("token"), &context);
    let error = opened(&cipher(8, &[9]), &sealed, &context).unwrap_err();
    assert_eq!(error, UnsealError::UnknownKey(key_id.clone()));
    let message = error.to_string();
    assert!(
        message.contains(&key_id) && message.contains("APP_SECRET_PREVIOUS"),
        "{message}"
    );
}

#[test]
fn value_of_an_earlier_version_opens_and_is_resealed() {
    let (context, sealed) = (token_context(), unversioned(7, "token"));
    for cipher in [cipher(7, &[]), cipher(8, &[7])] {
        assert_eq!(opened(&cipher, &sealed, &context).unwrap(), "token");
        let fresh = cipher.reseal(&sealed, &context).unwrap();
        assert!(fresh.0.starts_with(&cipher.current_marker()));
        assert_eq!(opened(&cipher, &fresh, &context).unwrap(), "token");
    }
    assert_eq!(
        opened(&cipher(8, &[]), &sealed, &context),
        Err(UnsealError::Unrecognized)
    );
    assert_eq!(
        opened(&cipher(8, &[]), &Sealed(vec![1, 2, 3]), &context),
        Err(UnsealError::Unrecognized)
    );
}

#[test]
fn resealed_value_needs_the_current_secret_alone() {
    let context = token_context();
    let before = cipher(7, &[]).seal(&SecretString::from("token"), &context);
    let fresh = cipher(8, &[7]).reseal(&before, &context).unwrap();
    assert_eq!(opened(&cipher(8, &[]), &fresh, &context).unwrap(), "token");
    assert_eq!(
        cipher(9, &[]).reseal(&before, &context),
        Err(UnsealError::UnknownKey(AppSecret::from([7; 32]).key_id().unwrap()))
    );
}

#[test]
fn resealed_response_of_an_earlier_version_carries_its_request_key() {
    let context = SealContext::new(SealPurpose::StoredResponse, ACCOUNT, "key");
    let text = r#"{"status":201,"headers":[],"body":"b"}"#;
    let fresh = cipher(8, &[7]).reseal(&unversioned(7, text), &context).unwrap();
    let fields = opened(&cipher(8, &[]), &fresh, &context).unwrap();
    let key = request_hash::unversioned_key(&[7; 32].into());
    let fields: serde_json::Value = serde_json::from_str(&fields).unwrap();
    assert_eq!(fields[request_hash::KEY_FIELD], key.expose());
    let again = cipher(9, &[8]).reseal(&fresh, &context).unwrap();
    let unchanged: serde_json::Value =
        serde_json::from_str(&opened(&cipher(9, &[]), &again, &context).unwrap()).unwrap();
    assert_eq!(unchanged, fields);
}
