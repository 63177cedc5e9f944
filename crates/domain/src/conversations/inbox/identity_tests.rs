//! Random senders write to numbers of two portfolios, with and without their phone number, and their ids change.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use time::Duration;
use time::macros::datetime;
use uuid::Uuid;

use super::*;

const SENDERS: usize = 4;
const SCOPES: [&str; 2] = ["P1", "P2"];

/// What a callback shows of its sender.
#[derive(Clone, Copy, Debug)]
struct Step {
    writer: usize,
    scope: usize,
    shows_phone: bool,
    shows_id: bool,
    shows_parent: bool,
    //// The sender gets a new user id for the scope.
    moves: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..SENDERS,
        0..SCOPES.len(),
        any::<[bool; 3]>(),
        prop::bool::weighted(0.15),
    );
    let step = step.prop_map(|(writer, scope, [shows_phone, shows_id, shows_parent], moves)| {
        // One of the senders always hides the number.
        let shows_phone = shows_phone && writer > 0;
        let shows_id = shows_id || !shows_phone || moves;
        Step {
            writer,
            scope,
            shows_phone,
            shows_id,
            shows_parent: shows_parent && shows_id && writer % 2 == 0,
            moves,
        }
    });
    prop::collection::vec(step, 1..40)
}

#[derive(Default)]
struct World {
    contacts: BTreeMap<ContactId, ContactIdentity>,
    /// How often the id of a sender for a scope changed.
    generations: BTreeMap<(usize, usize), usize>,
    /// Who wrote the messages of each contact.
    messages_by: BTreeMap<ContactId, BTreeSet<usize>>,
    /// What the numbers saw of senders, and the contacts of it.
    seen: BTreeSet<String>,
    next: u128,
}

impl World {
    fn sender(&self, step: Step) -> Sender {
        let generation = self.generations.get(&(step.writer, step.scope)).copied().unwrap_or(0);
        Sender {
            wa_id: step.shows_phone.then(|| format!("55119610000{:02}", step.writer)),
            user_id: step
                .shows_id
                .then(|| format!("BR.{}x{}x{generation}", step.writer, step.scope)),
            parent_user_id: step.shows_parent.then(|| format!("BR.ENT.{}", step.writer)),
            ..Sender::default()
        }
    }

    fn evidence(sender: &Sender, scope: &str) -> Vec<String> {
        let id = sender.user_id.as_ref().map(|id| format!("{scope} {id}"));
        let evidence = [sender.wa_id.clone(), id, sender.parent_user_id.clone()];
        evidence.into_iter().flatten().collect()
    }

    /// The contacts that the store loads for these keys, with those of the same persons.
    fn loaded(&self, keys: &InboxKeys, scope: &str) -> Vec<ContactIdentity> {
        let has = |keys: &[String], value: &Option<String>| value.as_ref().is_some_and(|value| keys.contains(value));
        let is_loaded = |contact: &&ContactIdentity| {
            has(&keys.phones, &contact.phone)
                || has(&keys.wa_ids, &contact.wa_id)
                || has(&keys.user_ids, &contact.wa_user_id)
                || contact.user_ids.iter().any(|known| {
                    (known.scope == scope && keys.user_ids.contains(&known.user_id))
                        || has(&keys.user_ids, &known.parent_user_id)
                })
        };
        let mut loaded: BTreeSet<ContactId> = self.contacts.values().filter(is_loaded).map(|row| row.id).collect();
        loop {
            let links = self
                .contacts
                .values()
                .filter_map(|row| Some([row.id, row.same_person_as?]));
            let links = links.filter(|link| link.iter().any(|id| loaded.contains(id)));
            let linked: Vec<ContactId> = links.flatten().collect();
            let size = loaded.len();
            loaded.extend(linked);
            if loaded.len() == size {
                return loaded.iter().map(|id| self.contacts[id].clone()).collect();
            }
        }
    }

    fn apply(&mut self, event: InboundEvent, scope: &str, now: OffsetDateTime) -> InboxChanges {
        self.next += 1;
        let id = |kind: u128| Uuid::from_u128(kind * 1000 + self.next);
        let item = InboundItem {
            event,
            contact_id: id(1).into(),
            conversation_id: id(2).into(),
            message_id: id(3).into(),
            media_id: id(4).into(),
        };
        let number = ReceivingNumber {
            profile_id: ProfileId(Uuid::nil()),
            scope: scope.to_owned(),
            now,
        };
        let contacts = self.loaded(&InboxKeys::of(std::slice::from_ref(&item)), scope);
        let changes = Inbox::new(contacts, vec![], HashMap::new()).apply(vec![item], &number);
        for contact in changes.new_contacts.iter().chain(&changes.changed) {
            self.contacts.insert(contact.id, contact.clone());
        }
        for (contact, known) in &changes.user_ids {
            let ids = &mut self.contacts.get_mut(contact).unwrap().user_ids;
            ids.retain(|earlier| earlier.scope != known.scope);
            ids.push(known.clone());
        }
        changes
    }

    fn step(&mut self, step: Step, now: OffsetDateTime) {
        let scope = SCOPES[step.scope];
        if step.moves {
            let sender = self.sender(Step {
                shows_parent: false,
                ..step
            });
            *self.generations.entry((step.writer, step.scope)).or_default() += 1;
            let new_ids = self.sender(Step {
                shows_phone: false,
                shows_parent: false,
                ..step
            });
            let is_known = Self::evidence(&sender, scope)
                .iter()
                .any(|seen| self.seen.contains(seen));
            if is_known {
                self.seen.extend(Self::evidence(&new_ids, scope));
            }
            self.apply(InboundEvent::NumberChanged { sender, now: new_ids }, scope, now);
            return;
        }
        let sender = self.sender(step);
        let evidence = Self::evidence(&sender, scope);
        let is_known = evidence.iter().any(|seen| self.seen.contains(seen));
        self.seen.extend(evidence);
        let message = InboundMessage {
            wa_message_id: format!("m{}", self.next),
            sender,
            at: now,
            kind: "text".into(),
            text: Some("oi".into()),
            can_opt_out: true,
            answered_wa_id: None,
            referral: None,
            payload: json!({}),
            caption: None,
            interactive: None,
            quoted: None,
            file: None,
        };
        let changes = self.apply(InboundEvent::Message(message), scope, now);
        assert_eq!(changes.new_contacts.is_empty(), is_known, "{step:?}");
        self.messages_by
            .entry(changes.messages[0].contact_id)
            .or_default()
            .insert(step.writer);
    }

    /// Whether a campaign writes to another contact of the same sender. In SQL, `same_person_goes_first` follows links of any
    /// length; here two steps must do, because the contacts of a person are a star.
    fn other_goes_first(&self, contact: &ContactIdentity) -> bool {
        let named = contact.same_person_as.and_then(|id| self.contacts.get(&id));
        let further = named
            .and_then(|named| named.same_person_as)
            .and_then(|id| self.contacts.get(&id));
        let order = |contact: &ContactIdentity| (contact.phone.is_none(), contact.id);
        let mut others = named.into_iter().chain(further);
        others.any(|other| other.id != contact.id && order(other) < order(contact))
    }
}

fn assert_unique<T: Ord + std::fmt::Debug>(values: impl Iterator<Item = T>) {
    let mut seen = BTreeSet::new();
    for value in values {
        let repeated = format!("{value:?}");
        assert!(seen.insert(value), "{repeated} belongs to two contacts");
    }
}

proptest! {
    /// A contact has one sender, a new contact is made only for a sender of whom nothing was seen, no two contacts have
    /// one id, and a campaign writes once to a sender whose contacts are linked.
    #[test]
    fn contacts_have_one_sender_each_and_linked_contacts_get_one_message(steps in steps()) {
        let mut world = World::default();
        for (second, step) in (0_i64..).zip(steps) {
            world.step(step, datetime!(2026-03-01 12:00 UTC) + Duration::seconds(second));
            let contacts = || world.contacts.values();
            assert_unique(contacts().filter_map(|contact| contact.phone.as_ref()));
            assert_unique(contacts().filter_map(|contact| contact.wa_id.as_ref()));
            assert_unique(contacts().filter_map(|contact| contact.wa_user_id.as_ref()));
            let ids = contacts().flat_map(|contact| &contact.user_ids);
            assert_unique(ids.map(|known| (&known.scope, &known.user_id)));
        }
        for (contact, senders) in &world.messages_by {
            prop_assert_eq!(senders.len(), 1, "{:?} is several senders", contact);
        }
        for writer in 0..SENDERS {
            let of_sender = |id: &ContactId| world.messages_by.get(id).is_some_and(|senders| senders.contains(&writer));
            let contacts: Vec<_> = world.contacts.values().filter(|contact| of_sender(&contact.id)).collect();
            // Contacts that name none are not known to have the same sender.
            let linked: Vec<_> = contacts.iter().filter(|contact| contact.same_person_as.is_some()).collect();
            let written_to = linked.iter().filter(|contact| !world.other_goes_first(contact)).count();
            prop_assert_eq!(written_to, usize::from(!linked.is_empty()), "{:?}", contacts);
        }
    }
}
