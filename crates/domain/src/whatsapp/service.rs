//! The use cases of connected numbers.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::{Line, Profile, ProfileError, ProfileInput, ProfileStore, StoredProfile};
use crate::shared::{Cipher, Clock, FieldErrors, Ids, ProfileId, Slice, SliceQuery, Tenant, text};

/// The longest name of a number, and the longest id and token of the platform, in characters.
const NAME_CHARS: usize = 100;
const PLATFORM_ID_CHARS: usize = 64;
const TOKEN_CHARS: usize = 4096;

/// The use cases of connected numbers.
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

    /// The account's numbers.
    pub async fn list(&self, tenant: &Tenant, query: &SliceQuery) -> Result<Slice<Profile>, ProfileError> {
        let slice = self.store.list(tenant.account_id, query).await?;
        let Slice {
            data,
            next_cursor,
            has_more,
        } = slice;
        Ok(Slice {
            data: data.into_iter().map(|stored| stored.profile).collect(),
            next_cursor,
            has_more,
        })
    }

    /// Connects a number; its token is encrypted before it reaches the store.
    pub async fn create(&self, tenant: &Tenant, input: ProfileInput) -> Result<Profile, ProfileError> {
        let token = input.access_token.clone().unwrap_or_default();
        check_token(&token)?;
        let profile = merge(self.blank(), input)?;
        let stored = StoredProfile {
            profile,
            token: self.cipher.seal(&token),
        };
        self.store.insert(tenant.account_id, &stored).await?;
        Ok(stored.profile)
    }

    /// Changes a number's fields; an absent token is kept.
    pub async fn update(&self, tenant: &Tenant, id: ProfileId, input: ProfileInput) -> Result<Profile, ProfileError> {
        // What is wrong with the input is told first, whether or not there is such a number.
        let any = Profile {
            name: "-".to_owned(),
            phone_number_id: "-".to_owned(),
            waba_id: "-".to_owned(),
            ..self.blank()
        };
        check(any, input.clone())?;
        let stored = self
            .store
            .find(tenant.account_id, id)
            .await?
            .ok_or(ProfileError::NotFound)?;
        let token = match &input.access_token {
            Some(token) => self.cipher.seal(token),
            None => stored.token,
        };
        let profile = Profile {
            updated_at: self.clock.now(),
            ..merge(stored.profile, input)?
        };
        let changed = StoredProfile { profile, token };
        match self.store.update(tenant.account_id, &changed).await? {
            true => Ok(changed.profile),
            false => Err(ProfileError::NotFound),
        }
    }

    fn blank(&self) -> Profile {
        let now = self.clock.now();
        Profile {
            id: self.ids.next().into(),
            name: String::new(),
            phone_number_id: String::new(),
            waba_id: String::new(),
            messages_per_second: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Disconnects a number.
    pub async fn delete(&self, tenant: &Tenant, id: ProfileId) -> Result<(), ProfileError> {
        match self.store.delete(tenant.account_id, id).await? {
            true => Ok(()),
            false => Err(ProfileError::NotFound),
        }
    }
}

impl StoredProfile {
    /// What a call to the platform is made with; none when the token cannot be decrypted any more.
    pub fn line(&self, cipher: &dyn Cipher) -> Option<Line> {
        Some(Line {
            phone_number_id: self.profile.phone_number_id.clone(),
            waba_id: self.profile.waba_id.clone(),
            token: cipher.open(&self.token)?,
        })
    }
}

/// What is wrong with an input, its token too.
fn check(profile: Profile, input: ProfileInput) -> Result<(), FieldErrors> {
    let token = input.access_token.as_ref().map_or(Ok(()), check_token);
    let mut errors = token.err().unwrap_or_default();
    if let Err(FieldErrors(more)) = merge(profile, input) {
        errors.0.extend(more);
    }
    errors.into_result()
}

/// A header value: visible ASCII.
fn check_token(token: &SecretString) -> Result<(), FieldErrors> {
    let token = token.expose_secret();
    let fits = !token.is_empty() && token.len() <= TOKEN_CHARS && token.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(())
    } else {
        Err(FieldErrors::one(
            "access_token",
            "must be 1 to 4096 visible ASCII characters",
        ))
    }
}

fn merge(profile: Profile, input: ProfileInput) -> Result<Profile, FieldErrors> {
    let merged = Profile {
        name: input.name.map_or(profile.name, |name| text::sanitize(&name)),
        phone_number_id: input.phone_number_id.unwrap_or(profile.phone_number_id),
        waba_id: input.waba_id.unwrap_or(profile.waba_id),
        messages_per_second: input.messages_per_second.unwrap_or(profile.messages_per_second),
        ..profile
    };
    let mut errors = FieldErrors::default();
    if merged.name.is_empty() || merged.name.chars().count() > NAME_CHARS {
        errors.add("name", "must have 1 to 100 characters");
    }
    for (field, id) in [
        ("phone_number_id", &merged.phone_number_id),
        ("waba_id", &merged.waba_id),
    ] {
        let known = !id.is_empty()
            && id.len() <= PLATFORM_ID_CHARS
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !known {
            errors.add(field, "must be an id of the platform, at most 64 letters and digits");
        }
    }
    if merged
        .messages_per_second
        .is_some_and(|rate| !(1..=1000).contains(&rate))
    {
        errors.add("messages_per_second", "must be 1 to 1000");
    }
    errors.into_result()?;
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockProfileStore;
    use super::*;
    use crate::shared::{AccountId, MockCipher, MockClock, MockIds, Role, Sealed, UserId};

    fn profiles(store: MockProfileStore) -> Profiles {
        let mut cipher = MockCipher::new();
        cipher
            .expect_seal()
            .returning(|token| Sealed(token.expose_secret().bytes().rev().collect()));
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
        }
    }

    #[tokio::test]
    async fn the_store_never_sees_the_token() {
        let mut store = MockProfileStore::new();
        store
            .expect_insert()
            .withf(|_, stored| stored.token == Sealed(b"cba".to_vec()))
            .returning(|_, _| Ok(()));
        let profile = profiles(store).create(&tenant(), input()).await.unwrap();
        assert_eq!((profile.name.as_str(), profile.messages_per_second), ("Loja", Some(80)));
    }

    #[tokio::test]
    async fn every_field_is_checked_and_named() {
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
    async fn what_is_wrong_with_a_change_is_told_before_whether_there_is_such_a_number() {
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
        };
        let all = [
            "access_token",
            "messages_per_second",
            "name",
            "phone_number_id",
            "waba_id",
        ];
        assert_eq!(change(wrong).await, all);
        assert_eq!(change(input()).await, Vec::<String>::new());
        assert_eq!(change(ProfileInput::default()).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn an_absent_token_is_kept() {
        let mut store = MockProfileStore::new();
        store.expect_find().returning(|_, _| {
            let at = datetime!(2026-01-01 0:00 UTC);
            let profile = Profile {
                id: ProfileId(Uuid::nil()),
                name: "n".into(),
                phone_number_id: "1".into(),
                waba_id: "2".into(),
                messages_per_second: Some(5),
                created_at: at,
                updated_at: at,
            };
            Ok(Some(StoredProfile {
                profile,
                token: Sealed(vec![1]),
            }))
        });
        store
            .expect_update()
            .withf(|_, stored| stored.token == Sealed(vec![1]))
            .returning(|_, _| Ok(true));
        let change = ProfileInput {
            messages_per_second: Some(None),
            ..ProfileInput::default()
        };
        let profile = profiles(store)
            .update(&tenant(), ProfileId(Uuid::nil()), change)
            .await
            .unwrap();
        assert_eq!((profile.messages_per_second, profile.waba_id.as_str()), (None, "2"));
    }
}
