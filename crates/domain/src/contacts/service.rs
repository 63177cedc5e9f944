//! The use cases of contacts and tags.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::limits::{attributes_fit, attributes_rule, merge_rule};
use super::{
    Contact, ContactDraft, ContactError, ContactInput, ContactQuery, ContactStore, Import, ImportFormat, Phone, Tag,
    TagStore, UpsertOutcome, upsert,
};
use crate::shared::{AccountId, Clock, ContactId, FieldErrors, Ids, Slice, SliceQuery, TagId, Tenant, text};

const NAME_CHARS: usize = 200;
const WA_USER_ID_CHARS: usize = 128;
const TAG_NAME_CHARS: usize = 100;
const COLOR_CHARS: usize = 32;

/// How many tags a contact may be given.
const TAGS: usize = 50;

/// The use cases of contacts.
pub struct Contacts {
    store: Arc<dyn ContactStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Contacts {
    pub fn new(store: Arc<dyn ContactStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// Contacts of the account, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &ContactQuery) -> Result<Slice<Contact>, ContactError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// One contact.
    pub async fn get(&self, tenant: &Tenant, id: ContactId) -> Result<Contact, ContactError> {
        self.store
            .find(tenant.account_id, id)
            .await?
            .ok_or(ContactError::NotFound)
    }

    /// A new contact.
    pub async fn create(&self, tenant: &Tenant, input: ContactInput) -> Result<Contact, ContactError> {
        let tags = input.tag_ids.clone().unwrap_or_default();
        let draft = merge(ContactDraft::default(), input, true)?;
        let id = self.ids.next().into();
        Ok(self
            .store
            .insert(tenant.account_id, id, &draft, &tags, self.clock.now())
            .await?)
    }

    /// Changes the given fields of a contact.
    pub async fn update(&self, tenant: &Tenant, id: ContactId, input: ContactInput) -> Result<Contact, ContactError> {
        // What is wrong with the input is told first, whether or not there is such a contact.
        let named = ContactDraft {
            name: "-".to_owned(),
            ..ContactDraft::default()
        };
        merge(named, input.clone(), false)?;
        let stored = self.get(tenant, id).await?;
        let tags = input.tag_ids.clone();
        let is_known = stored.phone.is_some() || stored.wa_user_id.is_some();
        let draft = ContactDraft {
            name: stored.name,
            phone: stored.phone.as_deref().and_then(Phone::parse),
            email: stored.email,
            wa_user_id: stored.wa_user_id,
            attributes: stored.attributes,
            opted_out: None,
        };
        let draft = merge(draft, input, is_known)?;
        let updated = self
            .store
            .update(tenant.account_id, id, &draft, tags.as_deref(), self.clock.now())
            .await?;
        updated.ok_or(ContactError::NotFound)
    }

    /// Replaces a contact's tags.
    pub async fn set_tags(&self, tenant: &Tenant, id: ContactId, tags: Vec<TagId>) -> Result<Contact, ContactError> {
        self.update(
            tenant,
            id,
            ContactInput {
                tag_ids: Some(tags),
                ..ContactInput::default()
            },
        )
        .await
    }

    /// Removes a contact.
    pub async fn delete(&self, tenant: &Tenant, id: ContactId) -> Result<(), ContactError> {
        match self.store.delete(tenant.account_id, id, self.clock.now()).await? {
            true => Ok(()),
            false => Err(ContactError::NotFound),
        }
    }

    /// Takes in one contact that another system tells of: by its phone or its user id, new or not. True: it is new.
    pub async fn upsert(&self, account: AccountId, fields: &Map<String, Value>) -> Result<bool, ContactError> {
        let contact = upsert::read(fields)?;
        let id = self.ids.next().into();
        let now = self.clock.now();
        match self.store.upsert_one(account, id, &contact, now).await? {
            UpsertOutcome::Created => Ok(true),
            UpsertOutcome::Updated => Ok(false),
            UpsertOutcome::AttributesExceeded => Err(FieldErrors::one("attributes", merge_rule()).into()),
        }
    }

    /// Begins to take in a file.
    pub fn import(&self, tenant: &Tenant, format: ImportFormat) -> Import {
        Import::new(self.store.clone(), self.clock.clone(), self.ids.clone(), tenant, format)
    }
}

/// What becomes of a contact by what was written.
pub(super) fn merge(draft: ContactDraft, input: ContactInput, needs_number: bool) -> Result<ContactDraft, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = input.name.unwrap_or(draft.name);
    let name = check_name(&name).unwrap_or_else(|| {
        errors.add("name", "must have 1 to 200 characters");
        name
    });
    let phone = changed(draft.phone, input.phone, |text| Phone::parse(&text))
        .unwrap_or_else(|| fault(&mut errors, "phone", "is not a phone number"));
    let wa_user_id = changed(draft.wa_user_id, input.wa_user_id, check_wa_user_id)
        .unwrap_or_else(|| fault(&mut errors, "wa_user_id", "is not a user id of the platform"));
    if needs_number && phone.is_none() && wa_user_id.is_none() && errors.0.keys().all(|field| field == "name") {
        errors.add("phone", "is required, unless wa_user_id is given");
    }
    let email = changed(draft.email, input.email, |text| text::email(text.trim()))
        .unwrap_or_else(|| fault(&mut errors, "email", "is not an e-mail address"));
    let attributes = input.attributes.unwrap_or(draft.attributes);
    check_attributes(&attributes, &mut errors);
    if input.tag_ids.is_some_and(|tags| tags.len() > TAGS) {
        errors.add("tag_ids", format!("must have at most {TAGS} items"));
    }
    errors.into_result()?;
    Ok(ContactDraft {
        name,
        phone,
        email,
        wa_user_id,
        attributes,
        opted_out: input.opted_out,
    })
}

/// What becomes of a value: kept, cleared, or what was written, read. None when it cannot be read.
fn changed<T>(
    stored: Option<T>,
    input: Option<Option<String>>,
    read: impl Fn(String) -> Option<T>,
) -> Option<Option<T>> {
    match input {
        None => Some(stored),
        Some(None) => Some(None),
        Some(Some(text)) => read(text).map(Some),
    }
}

fn fault<T>(errors: &mut FieldErrors, field: &str, message: &str) -> Option<T> {
    errors.add(field, message);
    None
}

fn check_attributes(attributes: &Map<String, Value>, errors: &mut FieldErrors) {
    if !attributes_fit(attributes) {
        errors.add("attributes", attributes_rule());
    }
    for (key, value) in attributes {
        if value.is_array() || value.is_object() {
            errors.add(format!("attributes.{key}"), "must be a string, number, boolean or null");
        }
    }
}

/// The platform's id of a person whose number is hidden: a country, maybe `ENT`, and up to 128 letters and digits.
fn check_wa_user_id(text: String) -> Option<String> {
    let (country, rest) = text.split_once('.')?;
    let id = rest.strip_prefix("ENT.").unwrap_or(rest);
    let fits = country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && (1..=WA_USER_ID_CHARS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then_some(text)
}

/// A contact's name, sanitized; none when nothing or too much is left.
pub(super) fn check_name(name: &str) -> Option<String> {
    let name = text::sanitize(name);
    (!name.is_empty() && name.chars().count() <= NAME_CHARS).then_some(name)
}

/// The use cases of tags.
pub struct Tags {
    store: Arc<dyn TagStore>,
    ids: Arc<dyn Ids>,
}

impl Tags {
    pub fn new(store: Arc<dyn TagStore>, ids: Arc<dyn Ids>) -> Self {
        Self { store, ids }
    }

    /// Tags of the account, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &SliceQuery) -> Result<Slice<Tag>, ContactError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// A new tag.
    pub async fn create(&self, tenant: &Tenant, name: &str, color: Option<String>) -> Result<Tag, ContactError> {
        let name = text::sanitize(name);
        let mut errors = FieldErrors::default();
        if name.is_empty() || name.chars().count() > TAG_NAME_CHARS {
            errors.add("name", "must have 1 to 100 characters");
        }
        if color.as_ref().is_some_and(|color| color.chars().count() > COLOR_CHARS) {
            errors.add("color", "must have at most 32 characters");
        }
        errors.into_result()?;
        let tag = Tag {
            id: self.ids.next().into(),
            name,
            color,
        };
        self.store.insert(tenant.account_id, &tag).await?;
        Ok(tag)
    }

    /// Removes a tag, also from every contact.
    pub async fn delete(&self, tenant: &Tenant, id: TagId) -> Result<(), ContactError> {
        match self.store.delete(tenant.account_id, id).await? {
            true => Ok(()),
            false => Err(ContactError::NotFound),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{MockContactStore, MockTagStore};
    use super::*;
    use crate::shared::{MockClock, MockIds, Role, StoreError, UserId};

    fn contact(draft: &ContactDraft) -> Contact {
        Contact {
            id: ContactId(Uuid::nil()),
            name: draft.name.clone(),
            phone: draft.phone.as_ref().map(ToString::to_string),
            email: draft.email.clone(),
            wa_user_id: draft.wa_user_id.clone(),
            attributes: draft.attributes.clone(),
            tags: vec![],
            opted_out_at: None,
            created_at: datetime!(2026-03-01 12:00 UTC),
            updated_at: datetime!(2026-03-01 12:00 UTC),
        }
    }

    fn contacts(store: MockContactStore) -> Contacts {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-03-01 12:00 UTC));
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Contacts::new(Arc::new(store), Arc::new(clock), Arc::new(ids))
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    fn input(name: &str, phone: &str) -> ContactInput {
        ContactInput {
            name: Some(name.into()),
            phone: Some(Some(phone.into())),
            ..ContactInput::default()
        }
    }

    #[tokio::test]
    async fn a_new_contact_is_normalized() {
        let mut store = MockContactStore::new();
        store.expect_insert().returning(|_, _, draft, _, _| Ok(contact(draft)));
        let email = Some(Some(" ana@loja.example ".into()));
        let made = contacts(store)
            .create(
                &tenant(),
                ContactInput {
                    email,
                    ..input(" Ana  S. ", "11 6123-4567")
                },
            )
            .await;
        let made = made.unwrap();
        assert_eq!(
            (made.name.as_str(), made.phone.as_deref()),
            ("Ana S.", Some("+5511961234567"))
        );
        assert_eq!(made.email.as_deref(), Some("ana@loja.example"));
    }

    #[tokio::test]
    async fn every_wrong_field_is_named_at_once() {
        let wrong = ContactInput {
            email: Some(Some("ana@".into())),
            attributes: Some(json!({ "a": [1] }).as_object().unwrap().clone()),
            tag_ids: Some(vec![TagId(Uuid::nil()); 51]),
            ..input("", "123")
        };
        let Err(ContactError::Invalid(errors)) = contacts(MockContactStore::new()).create(&tenant(), wrong).await
        else {
            panic!()
        };
        let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
        assert_eq!(fields, ["attributes.a", "email", "name", "phone", "tag_ids"]);
        let missing = contacts(MockContactStore::new())
            .create(&tenant(), ContactInput::default())
            .await;
        let Err(ContactError::Invalid(errors)) = missing else {
            panic!()
        };
        assert_eq!(errors.0["phone"], ["is required, unless wa_user_id is given"]);
    }

    #[tokio::test]
    async fn a_user_id_is_enough_and_the_last_way_to_know_somebody_stays() {
        let mut store = MockContactStore::new();
        store.expect_insert().returning(|_, _, draft, _, _| Ok(contact(draft)));
        let known = ContactDraft {
            name: "Ana".into(),
            wa_user_id: Some("BR.1a".into()),
            ..ContactDraft::default()
        };
        store.expect_find().returning(move |_, _| Ok(Some(contact(&known))));
        store
            .expect_update()
            .returning(|_, _, draft, _, _| Ok(Some(contact(draft))));
        let contacts = contacts(store);
        let by_id = |id: &str| ContactInput {
            name: Some("Ana".into()),
            wa_user_id: Some(Some(id.into())),
            ..ContactInput::default()
        };
        for id in ["BR.1a", "US.ENT.Xy9", &format!("BR.{}", "a".repeat(128))] {
            let made = contacts.create(&tenant(), by_id(id)).await.unwrap();
            assert_eq!((made.phone, made.wa_user_id.as_deref()), (None, Some(id)));
        }
        for id in [
            "",
            "BR",
            "BR.",
            "br.1",
            "BRA.1",
            "BR.ENT.",
            "BR.a.b",
            "BR.é",
            &format!("BR.{}", "a".repeat(129)),
        ] {
            let Err(ContactError::Invalid(errors)) = contacts.create(&tenant(), by_id(id)).await else {
                panic!("{id}")
            };
            assert_eq!(errors.0.keys().collect::<Vec<_>>(), ["wa_user_id"], "{id}");
        }
        let id = ContactId(Uuid::nil());
        let cleared = ContactInput {
            wa_user_id: Some(None),
            ..ContactInput::default()
        };
        let refused = contacts.update(&tenant(), id, cleared.clone()).await;
        assert!(matches!(refused, Err(ContactError::Invalid(errors)) if errors.0.contains_key("phone")));
        let moved = ContactInput {
            phone: Some(Some("11961234567".into())),
            ..cleared
        };
        let moved = contacts.update(&tenant(), id, moved).await.unwrap();
        assert_eq!(
            (moved.phone.as_deref(), moved.wa_user_id),
            (Some("+5511961234567"), None)
        );
    }

    #[tokio::test]
    async fn a_taken_number_is_the_callers_fault() {
        let mut store = MockContactStore::new();
        store
            .expect_insert()
            .returning(|_, _, _, _, _| Err(StoreError::Taken { field: "phone" }));
        let refused = contacts(store).create(&tenant(), input("Ana", "11961234567")).await;
        assert!(matches!(refused, Err(ContactError::Invalid(errors)) if errors.0.contains_key("phone")));
    }

    #[tokio::test]
    async fn an_update_keeps_what_is_not_named_and_clears_on_null() {
        let stored = ContactDraft {
            name: "Ana".into(),
            phone: Phone::parse("11961234567"),
            email: Some("a@b.example".into()),
            attributes: json!({ "k": 1 }).as_object().unwrap().clone(),
            ..ContactDraft::default()
        };
        let mut store = MockContactStore::new();
        store.expect_find().returning(move |_, _| Ok(Some(contact(&stored))));
        store
            .expect_update()
            .returning(|_, _, draft, tags, _| Ok(Some(contact(draft)).filter(|_| tags.is_none())));
        let change = ContactInput {
            email: Some(None),
            ..ContactInput::default()
        };
        let changed = contacts(store)
            .update(&tenant(), ContactId(Uuid::nil()), change)
            .await
            .unwrap();
        assert_eq!((changed.name.as_str(), changed.email), ("Ana", None));
        assert_eq!(
            (changed.phone.as_deref(), changed.attributes.len()),
            (Some("+5511961234567"), 1)
        );
    }

    #[test]
    fn addresses() {
        for good in ["a@b.example", "ana.souza+x@loja.com.br", "ação@exemplo.com"] {
            assert!(text::email(good).is_some(), "{good}");
        }
        for bad in [
            "", "a", "a@", "@b.c", "a@b", "a b@c.d", "a@b..c", "a@@b.c", "a@-b.c", "a@b.c\n",
        ] {
            assert!(text::email(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_tag_needs_a_name() {
        let tags = Tags::new(Arc::new(MockTagStore::new()), Arc::new(MockIds::new()));
        let refused = tags.create(&tenant(), " <b> ", Some("c".repeat(33))).await;
        assert!(matches!(refused, Err(ContactError::Invalid(errors)) if errors.0.len() == 2));
    }
}
