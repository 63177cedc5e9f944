//! Identifies the contact of a sender by user id or phone number, and completes the contact's ids.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::Consent;
use super::same_person::{LinkedContact, star};
use crate::contacts::{Phone, ScopedUserId};
use crate::shared::{ContactId, redacted_debug, text};

/// The longest name of a contact, in characters.
const NAME_CHARS: usize = 200;

/// A sender as WhatsApp identifies it. At least one id is present.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The phone number, digits only, with or without Brazil's ninth digit. None if the sender hides it.
    pub wa_id: Option<String>,
    /// WhatsApp's user id of the sender for this business.
    pub user_id: Option<String>,
    /// WhatsApp's user id of the sender for the parent business.
    #[serde(default)]
    pub parent_user_id: Option<String>,
    /// The username that the sender chose.
    #[serde(default)]
    pub username: Option<String>,
    /// The name in the sender's WhatsApp profile.
    pub name: Option<String>,
}

redacted_debug!(Sender {});

impl Sender {
    /// The phone number in canonical form.
    pub fn phone(&self) -> Option<Phone> {
        Phone::parse(&format!("+{}", self.wa_id.as_deref()?))
    }

    /// The name of a new contact: the profile name, otherwise the phone number or an id.
    pub fn display_name(&self) -> String {
        let own = self.name.as_deref().map(text::sanitize).filter(|name| !name.is_empty());
        let phone = || self.phone().map(|phone| phone.to_string());
        let name = own
            .or_else(phone)
            .or_else(|| self.wa_id.clone())
            .or_else(|| self.user_id.clone());
        name.unwrap_or_default().chars().take(NAME_CHARS).collect()
    }
}

/// The part of a contact that inbound events can change.
#[derive(Clone, PartialEq, Eq)]
pub struct ContactIdentity {
    pub id: ContactId,
    pub name: String,
    /// E.164.
    pub phone: Option<String>,
    /// The phone number as WhatsApp writes it, digits only.
    pub wa_id: Option<String>,
    /// WhatsApp's user id that was seen last, or that the account set.
    pub wa_user_id: Option<String>,
    /// The ids that numbers reported. At most one for each scope.
    pub user_ids: Vec<ScopedUserId>,
    /// Another contact that is the same person.
    pub same_person_as: Option<ContactId>,
    pub consent: Consent,
}

redacted_debug!(ContactIdentity { id, consent });

/// Which number an event came to, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedBy<'a> {
    /// The scope of the user ids that the number reports.
    pub(super) scope: &'a str,
    pub(super) at: OffsetDateTime,
}

impl ContactIdentity {
    /// A new contact for an unknown sender.
    pub fn from_sender(id: ContactId, sender: &Sender) -> Self {
        Self {
            id,
            name: sender.display_name(),
            phone: sender.phone().map(|phone| phone.to_string()),
            wa_id: sender.wa_id.clone(),
            wa_user_id: None,
            user_ids: Vec::new(),
            same_person_as: None,
            consent: Consent::default(),
        }
    }

    /// Whether both have a number or id in common that only one contact may have.
    pub(super) fn shares_id_with(&self, other: &Self) -> bool {
        let same = |own: &Option<String>, others: &Option<String>| own.is_some() && own == others;
        same(&self.phone, &other.phone) || same(&self.wa_id, &other.wa_id) || same(&self.wa_user_id, &other.wa_user_id)
    }

    /// Whether both have the same stored columns, whatever their user ids.
    pub(super) fn is_stored_as(&self, other: &Self) -> bool {
        let without_ids = |contact: &Self| Self {
            user_ids: Vec::new(),
            ..contact.clone()
        };
        without_ids(self) == without_ids(other)
    }

    /// The id that no number reported. It fits every number.
    fn unscoped_user_id(&self) -> Option<&str> {
        let id = self.wa_user_id.as_deref()?;
        let is_reported = self.user_ids.iter().any(|reported| reported.user_id == id);
        (!is_reported).then_some(id)
    }

    fn has_user_id(&self, scope: &str, id: &str) -> bool {
        self.user_ids
            .iter()
            .any(|reported| reported.scope == scope && reported.user_id == id)
    }

    fn has_parent_user_id(&self, id: &str) -> bool {
        self.user_ids
            .iter()
            .any(|reported| reported.parent_user_id.as_deref() == Some(id))
    }

    /// Stores the sender's user id for the scope, which replaces an older one.
    fn record_user_id(&mut self, sender: &Sender, reported: ReportedBy<'_>) {
        let Some(id) = &sender.user_id else { return };
        let known = self.user_ids.iter_mut().find(|known| known.scope == reported.scope);
        let Some(known) = known else {
            self.user_ids.push(ScopedUserId {
                scope: reported.scope.to_owned(),
                user_id: id.clone(),
                parent_user_id: sender.parent_user_id.clone(),
                username: sender.username.clone(),
                first_seen_at: reported.at,
                last_seen_at: reported.at,
            });
            return;
        };
        // Messages may arrive in another order than they were written.
        if known.user_id != *id && reported.at >= known.last_seen_at {
            known.user_id.clone_from(id);
            known.first_seen_at = reported.at;
        }
        if known.user_id == *id {
            known.last_seen_at = known.last_seen_at.max(reported.at);
            known.first_seen_at = known.first_seen_at.min(reported.at);
            known.parent_user_id = sender.parent_user_id.clone().or_else(|| known.parent_user_id.take());
            known.username = sender.username.clone().or_else(|| known.username.take());
        }
    }

    /// The user id that was seen last.
    fn latest_user_id(&self) -> Option<&str> {
        let latest = self.user_ids.iter().max_by_key(|reported| reported.last_seen_at);
        latest.map(|reported| reported.user_id.as_str())
    }
}

/// The positions of all contacts that WhatsApp says are the sender, the best match first: by user id, by the parent's
/// user id, by canonical number, by `wa_id`. Names and usernames prove nothing.
pub(super) fn matches(contacts: &[ContactIdentity], sender: &Sender, scope: &str) -> Vec<usize> {
    let phone = sender.phone();
    let phone = phone.as_ref().map(Phone::as_str);
    let (id, parent, wa_id) = (
        sender.user_id.as_deref(),
        sender.parent_user_id.as_deref(),
        sender.wa_id.as_deref(),
    );
    let is_unscoped = |contact: &ContactIdentity, id: Option<&str>| id.is_some() && contact.unscoped_user_id() == id;
    let is_same: [&dyn Fn(&ContactIdentity) -> bool; 6] = [
        &|contact| id.is_some_and(|id| contact.has_user_id(scope, id)),
        &|contact| is_unscoped(contact, id),
        &|contact| parent.is_some_and(|id| contact.has_parent_user_id(id)),
        &|contact| is_unscoped(contact, parent),
        &|contact| phone.is_some() && contact.phone.as_deref() == phone,
        &|contact| wa_id.is_some() && contact.wa_id.as_deref() == wa_id,
    ];
    let mut found = Vec::new();
    for is_same in is_same {
        for (position, contact) in contacts.iter().enumerate() {
            if is_same(contact) && !found.contains(&position) {
                found.push(position);
            }
        }
    }
    found
}

/// Completes the ids of the sender's contact, the first of `matched`. The phone is set only if it is missing; the other
/// ids are replaced. An id that belongs to another contact is skipped, and such contacts are never joined: they name
/// each other as the same person. Returns the number of contacts that were found to be the same person.
pub(super) fn set_ids(
    contacts: &mut [ContactIdentity],
    matched: &[usize],
    sender: &Sender,
    reported: ReportedBy<'_>,
) -> usize {
    let [at, others @ ..] = matched else { return 0 };
    let at = *at;
    let phone = sender.phone().map(|phone| phone.to_string());
    let phone = phone.filter(|phone| is_free(contacts, at, |contact| contact.phone.as_ref() == Some(phone)));
    // A `wa_id` is a number: it belongs to the contact with the phone, even if that one has no `wa_id` yet.
    let has_phone = phone.is_some() || sender.phone().is_none();
    let wa_id = sender.wa_id.clone().filter(|_| has_phone);
    let wa_id = wa_id.filter(|id| is_free(contacts, at, |contact| contact.wa_id.as_ref() == Some(id)));
    let Some(contact) = contacts.get_mut(at) else { return 0 };
    contact.phone = contact.phone.take().or(phone);
    contact.wa_id = wa_id.or_else(|| contact.wa_id.take());
    contact.record_user_id(sender, reported);
    set_latest_user_id(contacts, at, sender);
    name_same_person(contacts, at, others)
}

/// Sets `wa_user_id` to the sender's user id if no later one was seen and no other contact has it. Only contacts with
/// the ids of the sender are loaded, so no other id can be compared.
fn set_latest_user_id(contacts: &mut [ContactIdentity], at: usize, sender: &Sender) {
    let latest = contacts.get(at).and_then(ContactIdentity::latest_user_id);
    let Some(id) = sender.user_id.clone().filter(|id| latest == Some(id)) else {
        return;
    };
    if is_free(contacts, at, |contact| contact.wa_user_id.as_ref() == Some(&id))
        && let Some(contact) = contacts.get_mut(at)
    {
        contact.wa_user_id = Some(id);
    }
}

/// Links the contact and the others as one person. Returns how many of the others named none before.
fn name_same_person(contacts: &mut [ContactIdentity], at: usize, others: &[usize]) -> usize {
    let found = others.iter().filter_map(|position| contacts.get(*position));
    let found = found.filter(|other| other.same_person_as.is_none()).count();
    let positions = others.iter().chain([&at]).filter(|_| !others.is_empty());
    let group = positions
        .filter_map(|position| contacts.get(*position))
        .map(|contact| contact.id);
    let links = contacts.iter().map(|contact| LinkedContact {
        id: contact.id,
        has_phone: contact.phone.is_some(),
        named: contact.same_person_as,
    });
    let names = star(&links.collect::<Vec<_>>(), group.collect());
    for contact in contacts {
        contact.same_person_as = names.get(&contact.id).copied().or(contact.same_person_as);
    }
    found
}

/// Replaces a contact's ids after a number change. If one of the new ids belongs to another contact, no id changes, and
/// the contacts name each other. Returns the number of contacts that were found to be the same person.
pub(super) fn change_number(
    contacts: &mut [ContactIdentity],
    at: usize,
    new_ids: &Sender,
    reported: ReportedBy<'_>,
) -> usize {
    let others: Vec<usize> = matches(contacts, new_ids, reported.scope)
        .into_iter()
        .filter(|position| *position != at)
        .collect();
    if !others.is_empty() {
        return name_same_person(contacts, at, &others);
    }
    let Some(contact) = contacts.get_mut(at) else { return 0 };
    contact.phone = new_ids
        .phone()
        .map(|phone| phone.to_string())
        .or_else(|| contact.phone.take());
    contact.wa_id = new_ids.wa_id.clone().or_else(|| contact.wa_id.take());
    contact.record_user_id(new_ids, reported);
    set_latest_user_id(contacts, at, new_ids);
    0
}

/// Whether no other contact has the id.
fn is_free(contacts: &[ContactIdentity], at: usize, has_id: impl Fn(&ContactIdentity) -> bool) -> bool {
    !contacts
        .iter()
        .enumerate()
        .any(|(position, contact)| position != at && has_id(contact))
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    fn sender(wa_id: Option<&str>, user_id: Option<&str>) -> Sender {
        Sender {
            wa_id: wa_id.map(str::to_owned),
            user_id: user_id.map(str::to_owned),
            name: None,
            ..Sender::default()
        }
    }

    fn contact(id: u128, phone: Option<&str>, wa_id: Option<&str>, user_id: Option<&str>) -> ContactIdentity {
        ContactIdentity {
            id: ContactId(Uuid::from_u128(id)),
            name: "Ana".into(),
            phone: phone.map(str::to_owned),
            wa_id: wa_id.map(str::to_owned),
            wa_user_id: user_id.map(str::to_owned),
            user_ids: Vec::new(),
            same_person_as: None,
            consent: Consent::default(),
        }
    }

    /// A number of the portfolio reports ids at this second.
    fn reported(scope: &str, second: i64) -> ReportedBy<'_> {
        ReportedBy { scope, at: at(second) }
    }

    /// The contact's ids by scope.
    fn ids(contact: &ContactIdentity) -> Vec<(&str, &str)> {
        let reported = contact.user_ids.iter();
        reported
            .map(|reported| (reported.scope.as_str(), reported.user_id.as_str()))
            .collect()
    }

    /// Finds the sender's contact and completes its ids, as an event of a number does.
    fn receive(contacts: &mut [ContactIdentity], sender: &Sender, reported: ReportedBy<'_>) -> (Vec<usize>, usize) {
        let matched = matches(contacts, sender, reported.scope);
        let same_persons = set_ids(contacts, &matched, sender, reported);
        (matched, same_persons)
    }

    #[test]
    fn sender_is_found_by_user_id_then_phone_then_wa_id() {
        let contacts = [
            contact(1, None, Some("553188887777"), None),
            contact(2, Some("+5531988887777"), None, None),
            contact(3, None, Some("999"), Some("BR.1")),
            contact(4, None, None, Some("BR.2")),
        ];
        let found = |wa_id, user_id| matches(&contacts, &sender(wa_id, user_id), "W1");
        assert_eq!(found(Some("553188887777"), Some("BR.1")), [2, 1, 0]);
        assert_eq!(found(Some("5531988887777"), None), [1]);
        assert_eq!(found(Some("999"), Some("BR.2")), [3, 2]);
        assert_eq!(found(Some("5511961234567"), Some("BR.2")), [3]);
        assert!(found(None, Some("BR.9")).is_empty());
        assert!(found(None, None).is_empty());
    }

    #[test]
    fn user_id_of_another_portfolio_identifies_no_contact() {
        let mut contacts = [contact(1, None, None, Some("BR.1"))];
        // No number reported the id yet: it fits every number.
        assert_eq!(
            receive(&mut contacts, &sender(None, Some("BR.1")), reported("W1", 0)).0,
            [0]
        );
        assert_eq!(ids(&contacts[0]), [("W1", "BR.1")]);
        assert!(matches(&contacts, &sender(None, Some("BR.1")), "W2").is_empty());
        // A number of the other portfolio reports its own id beside the phone.
        contacts[0].phone = Some("+5511961234567".into());
        let other = sender(Some("5511961234567"), Some("BR.2"));
        assert_eq!(receive(&mut contacts, &other, reported("W2", 1)).0, [0]);
        assert_eq!(ids(&contacts[0]), [("W1", "BR.1"), ("W2", "BR.2")]);
        assert_eq!(contacts[0].wa_user_id.as_deref(), Some("BR.2"));
        assert!(matches(&contacts, &sender(None, Some("BR.1")), "W2").is_empty());
        assert_eq!(matches(&contacts, &sender(None, Some("BR.1")), "W1"), [0]);
    }

    #[test]
    fn parent_user_id_fits_every_portfolio() {
        let with_parent = |user_id| Sender {
            parent_user_id: Some("BR.ENT.1".into()),
            username: Some("ana".into()),
            ..sender(None, Some(user_id))
        };
        let mut contacts = [contact(1, None, None, None), contact(2, None, None, Some("BR.ENT.1"))];
        contacts[0].record_user_id(&with_parent("BR.1"), reported("W1", 0));
        contacts[1].wa_user_id = None;
        assert_eq!(receive(&mut contacts, &with_parent("BR.2"), reported("W2", 1)).0, [0]);
        assert_eq!(ids(&contacts[0]), [("W1", "BR.1"), ("W2", "BR.2")]);
        assert_eq!(contacts[0].user_ids[1].username.as_deref(), Some("ana"));
    }

    #[test]
    fn newer_user_id_of_a_portfolio_replaces_the_older_one() {
        let mut contacts = [contact(1, Some("+5511961234567"), None, None)];
        let mut report = |user_id, second| {
            receive(
                &mut contacts,
                &sender(Some("5511961234567"), Some(user_id)),
                reported("W1", second),
            );
            (
                ids(&contacts[0])[0].1.to_owned(),
                contacts[0].wa_user_id.clone().unwrap(),
            )
        };
        let both = |id: &str| (id.to_owned(), id.to_owned());
        assert_eq!(report("BR.1", 10), both("BR.1"));
        assert_eq!(report("BR.2", 20), both("BR.2"));
        // This message was written before the change.
        assert_eq!(report("BR.1", 15), both("BR.2"));
        assert_eq!(
            (contacts[0].user_ids[0].first_seen_at, contacts[0].user_ids.len()),
            (at(20), 1)
        );
    }

    #[test]
    fn contacts_of_one_person_are_not_joined() {
        let mut contacts = [
            contact(1, Some("+5531988887777"), Some("553188887777"), None),
            contact(2, None, None, Some("BR.2")),
        ];
        let both = sender(Some("553188887777"), Some("BR.2"));
        // The message goes to the contact with the id.
        assert_eq!(receive(&mut contacts, &both, reported("W1", 0)), (vec![1, 0], 1));
        assert_eq!(
            (contacts[1].phone.as_deref(), contacts[1].wa_id.as_deref()),
            (None, None)
        );
        assert_eq!(contacts[0].phone.as_deref(), Some("+5531988887777"));
        let named = [contacts[0].same_person_as, contacts[1].same_person_as];
        assert_eq!(named, [Some(contacts[1].id), Some(contacts[0].id)]);
        // Counted once.
        assert_eq!(receive(&mut contacts, &both, reported("W1", 1)).1, 0);
    }

    #[test]
    fn phone_is_set_once_and_wa_id_is_replaced() {
        let mut contacts = [contact(1, None, None, Some("BR.1"))];
        for number in ["5511961234567", "5511961234568"] {
            receive(&mut contacts, &sender(Some(number), Some("BR.1")), reported("W1", 0));
        }
        assert_eq!(
            (contacts[0].phone.as_deref(), contacts[0].wa_id.as_deref()),
            (Some("+5511961234567"), Some("5511961234568"))
        );
    }

    #[test]
    fn number_change_applies_fully_or_not_at_all() {
        let mut contacts = [
            contact(1, Some("+5511961111111"), Some("5511961111111"), Some("BR.1")),
            contact(2, Some("+5511962222222"), None, Some("BR.2")),
        ];
        let before = contacts.clone();
        let change = |contacts: &mut [_], wa_id, user_id, second| {
            change_number(contacts, 0, &sender(wa_id, Some(user_id)), reported("W1", second))
        };
        assert_eq!(change(&mut contacts, Some("5511962222222"), "BR.9", 0), 1);
        assert_eq!(change(&mut contacts, None, "BR.2", 0), 0);
        assert_eq!(contacts[0].same_person_as, Some(contacts[1].id));
        contacts.iter_mut().for_each(|contact| contact.same_person_as = None);
        assert_eq!(contacts, before);
        change(&mut contacts, Some("553188887777"), "BR.9", 0);
        assert_eq!(
            (contacts[0].phone.as_deref(), contacts[0].wa_user_id.as_deref()),
            (Some("+5531988887777"), Some("BR.9"))
        );
        change(&mut contacts, None, "BR.10", 1);
        assert_eq!(ids(&contacts[0]), [("W1", "BR.10")]);
        assert_eq!(contacts[0].phone.as_deref(), Some("+5531988887777"));
    }

    #[test]
    fn display_name_prefers_profile_name_then_ids() {
        let named = |name: Option<&str>, wa_id, user_id| {
            Sender {
                name: name.map(str::to_owned),
                ..sender(wa_id, user_id)
            }
            .display_name()
        };
        assert_eq!(
            named(Some(" Ana <b>\u{0}Maria "), Some("553188887777"), None),
            "Ana Maria"
        );
        assert_eq!(named(Some(" \u{0} "), Some("553188887777"), None), "+5531988887777");
        assert_eq!(named(None, Some("55"), None), "55");
        assert_eq!(named(None, None, Some("BR.1")), "BR.1");
        assert_eq!(named(Some(&"é".repeat(300)), None, None).chars().count(), 200);
    }

    const EPOCH: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn at(second: i64) -> OffsetDateTime {
        EPOCH + Duration::seconds(second)
    }
}
