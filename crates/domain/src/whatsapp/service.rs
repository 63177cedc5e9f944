//! The use cases of connected numbers.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::verification::{NumberFacts, VerificationRecord, restart_event};
use super::{Profile, ProfileError, ProfileInput, ProfileStore, StoredProfile};
use crate::messaging::{ProfileKey, WhatsappCredentials};
use crate::shared::{
    AccountId, AuditAction, Cipher, Clock, Creation, CursorPage, CursorQuery, Event, FieldErrors, Ids, ProfileId,
    SealContext, Sealed, Tenant, retry_on_conflict, text,
};

/// The longest name of a number, WhatsApp id and access token, in characters.
const NAME_CHARS: usize = 100;
const WHATSAPP_ID_CHARS: usize = 64;
const TOKEN_CHARS: usize = 4096;

/// The digits of a PIN.
const PIN_DIGITS: usize = 6;

/// The audited type of a profile.
pub(super) const AUDITED: &str = "whatsapp_profile";

/// Connects, lists, changes and disconnects numbers.
pub struct Profiles {
    store: Arc<dyn ProfileStore>,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Profiles {
    pub fn new(
        store: Arc<dyn ProfileStore>,
        cipher: Arc<dyn Cipher>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            cipher,
            clock,
            ids,
        }
    }

    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Profile>, ProfileError> {
        let page = self.store.list(tenant.account_id, query).await?;
        let CursorPage {
            data,
            next_cursor,
            has_more,
        } = page;
        Ok(CursorPage {
            data: data.into_iter().map(|stored| stored.profile).collect(),
            next_cursor,
            has_more,
        })
    }

    pub async fn get(&self, tenant: &Tenant, id: ProfileId) -> Result<Profile, ProfileError> {
        let stored = self.store.find(tenant.account_id, id).await?;
        stored.map(|stored| stored.profile).ok_or(ProfileError::NotFound)
    }

    /// Connects a number. Its token is encrypted before it reaches the store.
    pub async fn create(&self, tenant: &Tenant, input: ProfileInput) -> Result<Profile, ProfileError> {
        let input = ProfileInput {
            name: Some(input.name.unwrap_or_default()),
            phone_number_id: Some(input.phone_number_id.unwrap_or_default()),
            waba_id: Some(input.waba_id.unwrap_or_default()),
            access_token: Some(input.access_token.unwrap_or_default()),
            ..input
        };
        let change = checked(input)?;
        let token = change.access_token.clone().unwrap_or_default();
        let record = VerificationRecord::new(self.clock.now());
        let profile = apply(self.new_profile(&record), change);
        let context = SealContext::whatsapp_token(tenant.account_id, profile.id);
        let stored = StoredProfile {
            profile,
            token: self.cipher.seal(&token, &context),
            version: 1,
            credentials_version: 1,
            verification_version: 1,
            history: record.history,
        };
        let audit = tenant.audit(AuditAction::Create, AUDITED, stored.profile.id);
        let events = [Event::Audit(audit), connection_notice(tenant, &stored.profile)];
        self.store.insert(tenant.account_id, &stored, &events).await?;
        Ok(stored.profile)
    }

    /// Changes the given fields of a number. Absent fields, the token included, keep their value, even if another
    /// request changes them concurrently. An id, token or PIN makes the profile pending until it is checked again.
    pub async fn update(&self, tenant: &Tenant, id: ProfileId, input: ProfileInput) -> Result<Profile, ProfileError> {
        // Validation comes first, so an invalid input gets the same error whether or not the number exists.
        let change = checked(input)?;
        let context = SealContext::whatsapp_token(tenant.account_id, id);
        let token = change.access_token.as_ref();
        let sealed = token.map(|token| self.cipher.seal(token, &context));
        let audit = tenant.audit(AuditAction::Update, AUDITED, id);
        let audit = Event::Audit(audit.with_changes(audited_changes(&change)));
        retry_on_conflict(async || {
            let stored = self.store.find(tenant.account_id, id).await?;
            let stored = stored.ok_or(ProfileError::NotFound)?;
            let before = stored.profile.clone();
            let changed = self.changed(stored, change.clone(), sealed.clone());
            let mut events = vec![audit.clone()];
            events.extend(restart_event(&before, &changed.profile));
            let written = self.store.update(tenant.account_id, &changed, &events).await?;
            Ok(written.or_missing(ProfileError::NotFound)?.map(|()| changed.profile))
        })
        .await
    }

    fn changed(&self, stored: StoredProfile, change: ProfileInput, token: Option<Sealed>) -> StoredProfile {
        let now = self.clock.now();
        let (record, restarts) = (stored.verification_record(), change.has_credentials());
        let earlier_number = stored.profile.phone_number_id.clone();
        let mut changed = StoredProfile {
            profile: Profile {
                updated_at: now,
                ..apply(stored.profile, change)
            },
            token: token.unwrap_or(stored.token),
            ..stored
        };
        if restarts {
            let is_other_number = changed.profile.phone_number_id != earlier_number;
            let restarted = record.restarted(is_other_number, now);
            changed.credentials_version += 1;
            changed.profile.verification = restarted.verification;
            changed.history = restarted.history;
            if is_other_number {
                changed.profile.number = NumberFacts::default();
            }
        }
        changed
    }

    fn new_profile(&self, record: &VerificationRecord) -> Profile {
        let now = self.clock.now();
        Profile {
            id: self.ids.next().into(),
            name: String::new(),
            phone_number_id: String::new(),
            waba_id: String::new(),
            messages_per_second: None,
            created_at: now,
            updated_at: now,
            verification: record.verification.clone(),
            number: NumberFacts::default(),
        }
    }

    pub async fn delete(&self, tenant: &Tenant, id: ProfileId) -> Result<(), ProfileError> {
        let audit = Event::Audit(tenant.audit(AuditAction::Delete, AUDITED, id));
        self.store
            .delete(tenant.account_id, id, &[audit])
            .await?
            .or_missing(ProfileError::NotFound)
    }
}

/// The notification that names who connected a number.
fn connection_notice(tenant: &Tenant, profile: &Profile) -> Event {
    tenant.creation_notice(&Creation {
        title: "WhatsApp number connected",
        action: "connected the WhatsApp number",
        name: &profile.name,
        id_field: "profile_id",
        id: profile.id.0,
    })
}

impl StoredProfile {
    /// Whether WhatsApp has confirmed the number.
    pub fn is_verified(&self) -> bool {
        self.profile.verification.is_verified()
    }

    /// The credentials of the account's call to WhatsApp, or none if the token cannot be opened.
    pub fn credentials(&self, account: AccountId, cipher: &dyn Cipher) -> Option<WhatsappCredentials> {
        Some(WhatsappCredentials {
            profile: ProfileKey {
                account_id: account,
                profile_id: self.profile.id,
            },
            phone_number_id: self.profile.phone_number_id.clone(),
            waba_id: self.profile.waba_id.clone(),
            token: cipher.open(&self.token, &SealContext::whatsapp_token(account, self.profile.id))?,
        })
    }
}

/// The fields that an update names, with their values; of secrets only that they were given.
fn audited_changes(change: &ProfileInput) -> Value {
    let mut changes = Map::new();
    for (field, value) in [
        ("name", change.name.as_ref()),
        ("phone_number_id", change.phone_number_id.as_ref()),
        ("waba_id", change.waba_id.as_ref()),
    ] {
        changes.extend(value.map(|value| (field.to_owned(), json!(value))));
    }
    for (field, secret) in [("access_token", &change.access_token), ("pin", &change.pin)] {
        changes.extend(secret.as_ref().map(|_| (field.to_owned(), json!("given"))));
    }
    let rate = change.messages_per_second.map(|rate| json!(rate));
    changes.extend(rate.map(|rate| ("messages_per_second".to_owned(), rate)));
    Value::Object(changes)
}

/// Refuses a PIN that is not six digits.
pub(super) fn check_pin(pin: Option<&SecretString>) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    if pin.is_some_and(|pin| !is_pin(pin)) {
        errors.add("pin", "must be 6 digits");
    }
    errors.into_result()
}

fn is_pin(pin: &SecretString) -> bool {
    let pin = pin.expose_secret();
    pin.len() == PIN_DIGITS && pin.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the token is a valid header value: visible ASCII.
fn is_token(token: &SecretString) -> bool {
    let token = token.expose_secret();
    !token.is_empty() && token.len() <= TOKEN_CHARS && token.bytes().all(|b| b.is_ascii_graphic())
}

fn is_whatsapp_id(id: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    !id.is_empty() && id.len() <= WHATSAPP_ID_CHARS && id.bytes().all(fits)
}

/// The input after validation of every field.
fn checked(input: ProfileInput) -> Result<ProfileInput, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = input.name.map(|name| text::sanitize(&name));
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", "must have 1 to 100 characters");
    }
    for (field, id) in [("phone_number_id", &input.phone_number_id), ("waba_id", &input.waba_id)] {
        if id.as_ref().is_some_and(|id| !is_whatsapp_id(id)) {
            errors.add(field, "must be a WhatsApp id of 1 to 64 letters, digits, _ or -");
        }
    }
    if input.access_token.as_ref().is_some_and(|token| !is_token(token)) {
        errors.add("access_token", "must be 1 to 4096 visible ASCII characters");
    }
    if input
        .messages_per_second
        .flatten()
        .is_some_and(|rate| !(1..=1000).contains(&rate))
    {
        errors.add("messages_per_second", "must be 1 to 1000");
    }
    if input.pin.as_ref().is_some_and(|pin| !is_pin(pin)) {
        errors.add("pin", "must be 6 digits");
    }
    errors.into_result()?;
    Ok(ProfileInput { name, ..input })
}

fn apply(profile: Profile, change: ProfileInput) -> Profile {
    Profile {
        name: change.name.unwrap_or(profile.name),
        phone_number_id: change.phone_number_id.unwrap_or(profile.phone_number_id),
        waba_id: change.waba_id.unwrap_or(profile.waba_id),
        messages_per_second: change.messages_per_second.unwrap_or(profile.messages_per_second),
        ..profile
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockProfileStore;
    use super::*;
    use crate::shared::{MockCipher, MockClock, MockIds, Role, UpdateOutcome, UserId};

    fn profiles(store: MockProfileStore) -> Profiles {
        let mut cipher = MockCipher::new();
        cipher
            .expect_seal()
            .returning(|token, _| Sealed(token.expose_secret().bytes().rev().collect()));
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Profiles::new(Arc::new(store), Arc::new(cipher), Arc::new(clock), Arc::new(ids))
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    fn input() -> ProfileInput {
        ProfileInput {
            name: Some(" Loja ".into()),
            phone_number_id: Some("1065".into()),
            waba_id: Some("1022".into()),
            access_token: Some("abc".into()),
            messages_per_second: Some(Some(80)),
            pin: None,
        }
    }

    #[tokio::test]
    async fn access_token_reaches_the_store_encrypted() {
        let mut store = MockProfileStore::new();
        store
            .expect_insert()
            .withf(|_, stored, events| {
                let [Event::Audit(_), Event::Notification(notice)] = events else {
                    panic!("{events:?}")
                };
                assert_eq!(notice.message, "ana@example.com connected the WhatsApp number Loja.");
                stored.token == Sealed(b"cba".to_vec())
            })
            .times(1)
            .returning(|_, _, _| Ok(()));
        let profile = profiles(store).create(&tenant(), input()).await.unwrap();
        assert_eq!((profile.name.as_str(), profile.messages_per_second), ("Loja", Some(80)));
    }

    #[tokio::test]
    async fn create_reports_every_invalid_field() {
        let wrong = ProfileInput {
            name: None,
            phone_number_id: Some("10/65".into()),
            waba_id: Some(String::new()),
            messages_per_second: Some(Some(1001)),
            ..input()
        };
        let Err(ProfileError::Invalid(errors)) = profiles(MockProfileStore::new()).create(&tenant(), wrong).await
        else {
            panic!()
        };
        let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
        assert_eq!(fields, ["messages_per_second", "name", "phone_number_id", "waba_id"]);
        for token in [None, Some("a\r\nb".into())] {
            let wrong = ProfileInput {
                access_token: token,
                ..input()
            };
            let refused = profiles(MockProfileStore::new()).create(&tenant(), wrong).await;
            assert!(matches!(refused, Err(ProfileError::Invalid(_))));
        }
    }

    #[tokio::test]
    async fn update_is_validated_before_the_number_is_found() {
        let change = async |input: ProfileInput| {
            let mut store = MockProfileStore::new();
            store.expect_find().returning(|_, _| Ok(None));
            match profiles(store).update(&tenant(), ProfileId(Uuid::nil()), input).await {
                Err(ProfileError::Invalid(errors)) => errors.0.into_keys().collect(),
                Err(ProfileError::NotFound) => vec![],
                other => panic!("{other:?}"),
            }
        };
        let wrong = ProfileInput {
            name: Some(" ".into()),
            phone_number_id: Some("10/65".into()),
            waba_id: Some(String::new()),
            access_token: Some("a b".into()),
            messages_per_second: Some(Some(0)),
            pin: Some("12345".into()),
        };
        let all = [
            "access_token",
            "messages_per_second",
            "name",
            "phone_number_id",
            "pin",
            "waba_id",
        ];
        assert_eq!(change(wrong).await, all);
        assert_eq!(change(input()).await, Vec::<String>::new());
        assert_eq!(change(ProfileInput::default()).await, Vec::<String>::new());
    }

    /// A store with one number and a version check. Before the nth write, `concurrent_write` changes the number.
    fn guarded(concurrent_write: impl Fn(usize, &mut StoredProfile) + Send + 'static) -> MockProfileStore {
        let at = datetime!(2026-01-01 0:00 UTC);
        let stored = StoredProfile {
            profile: Profile {
                id: ProfileId(Uuid::nil()),
                name: "n".into(),
                phone_number_id: "1".into(),
                waba_id: "2".into(),
                messages_per_second: Some(5),
                created_at: at,
                updated_at: at,
                verification: VerificationRecord::verified(at).verification,
                number: NumberFacts::default(),
            },
            token: Sealed(vec![1]),
            version: 1,
            credentials_version: 1,
            verification_version: 1,
            history: VerificationRecord::verified(at).history,
        };
        let row = Arc::new(Mutex::new((stored, 0)));
        let mut store = MockProfileStore::new();
        let read = row.clone();
        store
            .expect_find()
            .returning(move |_, _| Ok(Some(read.lock().unwrap().0.clone())));
        store.expect_update().returning(move |_, changed, _| {
            let (stored, writes) = &mut *row.lock().unwrap();
            *writes += 1;
            concurrent_write(*writes, stored);
            if stored.version != changed.version {
                return Ok(UpdateOutcome::Stale);
            }
            *stored = StoredProfile {
                version: stored.version + 1,
                ..changed.clone()
            };
            Ok(UpdateOutcome::Done(()))
        });
        store
    }

    async fn stored_in(profiles: &Profiles) -> StoredProfile {
        let id = ProfileId(Uuid::nil());
        profiles.store.find(tenant().account_id, id).await.unwrap().unwrap()
    }

    fn rate(rate: Option<i32>) -> ProfileInput {
        ProfileInput {
            messages_per_second: Some(rate),
            ..ProfileInput::default()
        }
    }

    #[tokio::test]
    async fn update_without_token_keeps_the_stored_token() {
        let profiles = profiles(guarded(|_, _| {}));
        let profile = profiles.update(&tenant(), ProfileId(Uuid::nil()), rate(None)).await;
        let profile = profile.unwrap();
        assert_eq!((profile.messages_per_second, profile.waba_id.as_str()), (None, "2"));
        assert_eq!(stored_in(&profiles).await.token, Sealed(vec![1]));
    }

    #[tokio::test]
    async fn update_beside_a_rotated_token_keeps_the_new_token() {
        let profiles = profiles(guarded(|write, stored| {
            if write == 1 {
                stored.token = Sealed(vec![2]);
                stored.version += 1;
            }
        }));
        let profile = profiles.update(&tenant(), ProfileId(Uuid::nil()), rate(Some(80))).await;
        assert_eq!(profile.unwrap().messages_per_second, Some(80));
        assert_eq!(stored_in(&profiles).await.token, Sealed(vec![2]));
    }

    #[tokio::test]
    async fn update_checks_only_given_fields() {
        let profiles = profiles(guarded(|_, stored| stored.profile.name = "n".repeat(200)));
        for _ in 0..2 {
            let changed = profiles.update(&tenant(), ProfileId(Uuid::nil()), rate(Some(7))).await;
            assert_eq!(changed.unwrap().messages_per_second, Some(7));
        }
    }

    #[tokio::test]
    async fn update_that_loses_every_attempt_is_a_conflict() {
        let profiles = profiles(guarded(|_, stored| stored.version += 1));
        let refused = profiles.update(&tenant(), ProfileId(Uuid::nil()), rate(Some(7))).await;
        assert!(matches!(refused, Err(ProfileError::Conflict(_))));
    }
}
