//! What news of senders changes in an account: its contacts, its conversations, its messages. The store reads what the
//! news may touch, this decides, the store writes what came of it; all under one lock.

use std::collections::{BTreeMap, HashSet};

use time::OffsetDateTime;

use super::people::{find, learn, move_to};
use super::{
    ConversationEvent, ConversationStatus, InboundMessage, InboundNews, Person, Sender, is_opt_out, transition,
};
use crate::shared::{ContactId, ConversationId, MessageId, ProfileId, redacted_debug};

/// One piece of news, with ids for what it may make.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The news.
    pub news: InboundNews,
    /// Of the contact, if the sender is unknown.
    pub contact_id: ContactId,
    /// Of the conversation, if it is their first message.
    pub conversation_id: ConversationId,
    /// Of the message.
    pub message_id: MessageId,
}

/// A conversation, as far as messages change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub id: ConversationId,
    /// With whom.
    pub contact_id: ContactId,
    /// The number that the latest inbound message came to.
    pub profile_id: Option<ProfileId>,
    /// Whether somebody looks after it.
    pub status: ConversationStatus,
    /// When the latest message was written.
    pub last_message_at: OffsetDateTime,
    /// When the contact last wrote.
    pub last_inbound_at: Option<OffsetDateTime>,
}

/// What of an account a batch of news may touch.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InboxKeys {
    /// Canonical numbers.
    pub phones: Vec<String>,
    /// Numbers as the platform writes them.
    pub wa_ids: Vec<String>,
    /// The platform's user ids.
    pub user_ids: Vec<String>,
    /// The platform's ids of messages.
    pub messages: Vec<String>,
}

redacted_debug!(InboxKeys {});

impl InboxKeys {
    /// Of these arrivals.
    pub fn of(arrivals: &[Arrival]) -> Self {
        let mut keys = Self::default();
        for arrival in arrivals {
            match &arrival.news {
                InboundNews::Message(message) => {
                    keys.messages.push(message.wa_message_id.clone());
                    keys.add(&message.sender);
                }
                InboundNews::Preference { sender, .. } => keys.add(sender),
                InboundNews::Moved { sender, now } => {
                    keys.add(sender);
                    keys.add(now);
                }
            }
        }
        for list in [
            &mut keys.phones,
            &mut keys.wa_ids,
            &mut keys.user_ids,
            &mut keys.messages,
        ] {
            list.sort_unstable();
            list.dedup();
        }
        keys
    }

    fn add(&mut self, sender: &Sender) {
        self.phones.extend(sender.phone().map(|phone| phone.to_string()));
        self.wa_ids.extend(sender.wa_id.clone());
        self.user_ids.extend(sender.user_id.clone());
    }
}

/// What of an account a batch of news may touch, as it stands.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    people: Vec<Person>,
    threads: BTreeMap<ContactId, Thread>,
    seen: HashSet<String>,
    changes: InboxChanges,
}

/// What came of a batch of news.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxChanges {
    /// Contacts to be made.
    pub met: Vec<Person>,
    /// Contacts that changed.
    pub changed: Vec<Person>,
    /// Those of them that give up an id which another contact of the batch takes over. The store clears their ids before
    /// it writes anybody's: ids are unique at every statement.
    pub released: Vec<ContactId>,
    /// Conversations that began or changed.
    pub threads: Vec<Thread>,
    /// Messages to be kept: which, where, what.
    pub messages: Vec<(MessageId, ConversationId, InboundMessage)>,
}

impl Inbox {
    /// `people` are those who bear any of the keys, oldest first, `threads` their conversations, `seen` the messages
    /// that are here already.
    pub fn new(people: Vec<Person>, threads: Vec<Thread>, seen: HashSet<String>) -> Self {
        Self {
            people,
            threads: threads.into_iter().map(|thread| (thread.contact_id, thread)).collect(),
            seen,
            changes: InboxChanges::default(),
        }
    }

    /// Takes in news that came to one number, in the order of its telling. A message that is here already, and news of
    /// somebody nobody knows and who said nothing, change nothing.
    #[must_use]
    pub fn take_in(mut self, arrivals: Vec<Arrival>, profile: ProfileId) -> InboxChanges {
        let (people, threads) = (self.people.clone(), self.threads.clone());
        for arrival in arrivals {
            match arrival.news {
                InboundNews::Message(ref message) if self.seen.contains(&message.wa_message_id) => {}
                InboundNews::Message(message) => {
                    let ids = (arrival.contact_id, arrival.conversation_id, arrival.message_id);
                    self.take_message(message, ids, profile);
                }
                InboundNews::Preference { sender, wanted, at } => self.take_preference(&sender, wanted, at),
                InboundNews::Moved { sender, now } => {
                    if let Some(at) = find(&self.people, &sender) {
                        move_to(&mut self.people, at, &now);
                    }
                }
            }
        }
        let (known, met) = self.people.split_at(people.len().min(self.people.len()));
        let mut changes = self.changes;
        changes.met = met.to_vec();
        changes.changed = known
            .iter()
            .zip(&people)
            .filter(|(now, before)| now != before)
            .map(|(now, _)| now.clone())
            .collect();
        changes.released = released(&people, &self.people);
        changes.threads = self
            .threads
            .into_values()
            .filter(|now| threads.get(&now.contact_id) != Some(now))
            .collect();
        changes
    }

    fn take_message(
        &mut self,
        message: InboundMessage,
        (contact_id, conversation_id, message_id): (ContactId, ConversationId, MessageId),
        profile: ProfileId,
    ) {
        self.seen.insert(message.wa_message_id.clone());
        let at = find(&self.people, &message.sender).unwrap_or_else(|| {
            self.people.push(Person::unknown(contact_id, &message.sender));
            self.people.len() - 1
        });
        learn(&mut self.people, at, &message.sender);
        let Some(person) = self.people.get_mut(at) else { return };
        if message.said && message.text.as_deref().is_some_and(is_opt_out) {
            person.consent = person.consent.withdrawn(message.at);
        }
        let thread = self.threads.entry(person.id).or_insert_with(|| Thread {
            id: conversation_id,
            contact_id: person.id,
            profile_id: None,
            status: ConversationStatus::Open,
            last_message_at: message.at,
            last_inbound_at: None,
        });
        thread.status = transition(thread.status, ConversationEvent::Message);
        thread.last_message_at = thread.last_message_at.max(message.at);
        if thread.last_inbound_at <= Some(message.at) {
            thread.last_inbound_at = Some(message.at);
            thread.profile_id = Some(profile);
        }
        self.changes.messages.push((message_id, thread.id, message));
    }

    fn take_preference(&mut self, sender: &Sender, wanted: bool, at: OffsetDateTime) {
        let position = find(&self.people, sender);
        if let Some(person) = position.and_then(|position| self.people.get_mut(position)) {
            person.consent = if wanted {
                person.consent.given(at)
            } else {
                person.consent.withdrawn(at)
            };
        }
    }
}

/// Who bore an id before that is somebody else's now.
fn released(before: &[Person], now: &[Person]) -> Vec<ContactId> {
    let taken_from = |(was, is): &(&Person, &Person)| {
        was != is && now.iter().any(|other| other.id != was.id && was.shares_id_with(other))
    };
    before
        .iter()
        .zip(now)
        .filter(taken_from)
        .map(|(was, _)| was.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::Duration;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    const T: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
    const PROFILE: ProfileId = ProfileId(Uuid::from_u128(77));

    fn sender(wa_id: &str) -> Sender {
        Sender {
            wa_id: Some(wa_id.into()),
            user_id: None,
            name: Some("Ana".into()),
        }
    }

    fn message(id: &str, wa_id: &str, text: &str, minutes: i64) -> InboundNews {
        InboundNews::Message(InboundMessage {
            wa_message_id: id.into(),
            sender: sender(wa_id),
            at: T + Duration::minutes(minutes),
            kind: "text".into(),
            text: Some(text.into()),
            said: true,
            referral: None,
            payload: json!({}),
        })
    }

    fn arrivals(news: Vec<InboundNews>) -> Vec<Arrival> {
        let numbered = news.into_iter().zip(1_u128..);
        let arrival = |(news, n): (InboundNews, u128)| Arrival {
            news,
            contact_id: Uuid::from_u128(100 + n).into(),
            conversation_id: Uuid::from_u128(200 + n).into(),
            message_id: Uuid::from_u128(300 + n).into(),
        };
        numbered.map(arrival).collect()
    }

    fn take_in(inbox: Inbox, news: Vec<InboundNews>) -> InboxChanges {
        inbox.take_in(arrivals(news), PROFILE)
    }

    #[test]
    fn an_unknown_sender_becomes_one_contact_with_one_conversation() {
        let changes = take_in(
            Inbox::default(),
            vec![
                message("a", "553188887777", "oi", 1),
                message("b", "5531988887777", "tudo bem?", 0),
                message("a", "553188887777", "oi", 1),
            ],
        );
        let [person] = &changes.met[..] else {
            panic!("{changes:?}")
        };
        assert_eq!(
            (person.name.as_str(), person.phone.as_deref()),
            ("Ana", Some("+5531988887777"))
        );
        let [thread] = &changes.threads[..] else {
            panic!("{changes:?}")
        };
        assert_eq!((thread.contact_id, thread.profile_id), (person.id, Some(PROFILE)));
        // The later of the two, though it was told first.
        assert_eq!(
            (thread.last_message_at, thread.last_inbound_at),
            (T + Duration::minutes(1), Some(T + Duration::minutes(1)))
        );
        let kept: Vec<&str> = changes
            .messages
            .iter()
            .map(|(_, _, message)| message.wa_message_id.as_str())
            .collect();
        assert_eq!(kept, ["a", "b"]);
        assert!(changes.changed.is_empty());
    }

    /// A contact with a closed conversation that holds message `a`.
    fn known() -> (Inbox, Person, Thread) {
        let person = Person {
            consent: super::super::Consent::default(),
            ..Person::unknown(Uuid::from_u128(1).into(), &sender("5511961234567"))
        };
        let thread = Thread {
            id: Uuid::from_u128(2).into(),
            contact_id: person.id,
            profile_id: None,
            status: ConversationStatus::Closed,
            last_message_at: T + Duration::minutes(9),
            last_inbound_at: Some(T),
        };
        let seen = HashSet::from(["a".to_owned()]);
        (
            Inbox::new(vec![person.clone()], vec![thread.clone()], seen),
            person,
            thread,
        )
    }

    #[test]
    fn a_repeated_message_changes_nothing_also_when_it_opts_out() {
        let (inbox, ..) = known();
        assert_eq!(
            take_in(inbox, vec![message("a", "5511961234567", "SAIR", 0)]),
            InboxChanges::default()
        );
    }

    #[test]
    fn a_message_reopens_and_an_old_one_takes_no_moment_back() {
        let (inbox, _, thread) = known();
        let changes = take_in(inbox.clone(), vec![message("b", "5511961234567", "oi", -5)]);
        let reopened = Thread {
            status: ConversationStatus::Open,
            ..thread.clone()
        };
        assert_eq!((&changes.threads[..], changes.messages.len()), (&[reopened][..], 1));
        let changes = take_in(inbox, vec![message("b", "5511961234567", "oi", 5)]);
        let now = &changes.threads[0];
        assert_eq!(
            (now.last_message_at, now.last_inbound_at, now.profile_id),
            (thread.last_message_at, Some(T + Duration::minutes(5)), Some(PROFILE))
        );
    }

    #[test]
    fn words_opt_out_when_somebody_said_them() {
        let (inbox, person, _) = known();
        let changes = take_in(
            inbox.clone(),
            vec![
                message("b", "5511961234567", " sair ", 3),
                message("c", "5511961234567", "STOP", 4),
            ],
        );
        assert_eq!(changes.changed[0].consent.opted_out_at, Some(T + Duration::minutes(3)));
        let InboundNews::Message(caption) = message("b", "5511961234567", "SAIR", 3) else {
            panic!()
        };
        let changes = take_in(
            inbox,
            vec![InboundNews::Message(InboundMessage { said: false, ..caption })],
        );
        assert!(changes.changed.is_empty(), "{person:?}");
    }

    #[test]
    fn preferences_and_moves_concern_known_people_alone() {
        let preference = |wa_id: &str, wanted, minutes| InboundNews::Preference {
            sender: sender(wa_id),
            wanted,
            at: T + Duration::minutes(minutes),
        };
        let moved = |from: &str, to: &str| InboundNews::Moved {
            sender: sender(from),
            now: sender(to),
        };
        let unknown = vec![preference("551196", false, 0), moved("551196", "551197")];
        assert_eq!(take_in(Inbox::default(), unknown), InboxChanges::default());
        let (inbox, ..) = known();
        let changes = take_in(
            inbox.clone(),
            vec![
                preference("5511961234567", false, 1),
                preference("5511961234567", true, 2),
                preference("5511961234567", false, 1),
            ],
        );
        assert_eq!(changes.changed[0].consent.opted_out_at, None);
        let changes = take_in(
            inbox,
            vec![
                moved("5511961234567", "5511962222222"),
                message("b", "5511962222222", "oi", 1),
            ],
        );
        assert_eq!(changes.changed[0].phone.as_deref(), Some("+5511962222222"));
        assert!(changes.met.is_empty());
    }

    #[test]
    fn ids_that_change_hands_are_released_first() {
        let moved = |from: &str, to: &str| InboundNews::Moved {
            sender: sender(from),
            now: sender(to),
        };
        let (inbox, person, _) = known();
        let changes = take_in(inbox.clone(), vec![moved("5511961234567", "5511962222222")]);
        assert_eq!(changes.released, []);
        let changes = take_in(
            inbox,
            vec![
                moved("5511961234567", "5511962222222"),
                message("b", "5511961234567", "oi", 1),
            ],
        );
        assert_eq!((changes.released, changes.met.len()), (vec![person.id], 1));
    }

    #[test]
    fn keys_are_of_everybody_named() {
        let news = vec![
            message("b", "553188887777", "oi", 0),
            message("b", "553188887777", "oi", 0),
            InboundNews::Moved {
                sender: Sender {
                    user_id: Some("BR.1".into()),
                    ..Sender::default()
                },
                now: sender("5511961234567"),
            },
        ];
        let keys = InboxKeys::of(&arrivals(news));
        assert_eq!(keys.phones, ["+5511961234567", "+5531988887777"]);
        assert_eq!(keys.wa_ids, ["5511961234567", "553188887777"]);
        assert_eq!(
            (keys.user_ids, keys.messages),
            (vec!["BR.1".to_owned()], vec!["b".to_owned()])
        );
    }
}
