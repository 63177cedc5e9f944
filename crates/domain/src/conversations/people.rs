//! Who a sender is: found among the contacts by number or user id, and what is learned of them on the way.

use time::{Duration, OffsetDateTime};

use crate::contacts::Phone;
use crate::shared::{ContactId, redacted_debug, text};

/// The longest name of a contact, in characters.
const NAME_CHARS: usize = 200;

/// Words that, being all somebody says, ask for no more messages.
const OPT_OUT: [&str; 3] = ["SAIR", "PARAR", "STOP"];

/// Somebody as the platform names them. At least one id is there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sender {
    /// Their number, digits alone, with or without the ninth; none for somebody who hides it.
    pub wa_id: Option<String>,
    /// Their id with the business.
    pub user_id: Option<String>,
    /// What they call themselves.
    pub name: Option<String>,
}

redacted_debug!(Sender {});

impl Sender {
    /// Their number in its one canonical form.
    pub fn phone(&self) -> Option<Phone> {
        Phone::parse(&format!("+{}", self.wa_id.as_deref()?))
    }

    /// What a contact of theirs is called: their own name, else what they are known by.
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

/// Whether a text is, as a whole, one of the words that opt out.
pub fn is_opt_out(said: &str) -> bool {
    OPT_OUT.contains(&said.trim().to_uppercase().as_str())
}

/// Whether somebody wants messages: the state machine of every writer. The latest wish counts, in whatever order and
/// however often it is reported; of two of the same second the refusal. `opted_out_at` is the time of the refusal that
/// was reported first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// When they asked for no more messages, and have not asked for them again.
    pub opted_out_at: Option<OffsetDateTime>,
    /// When they last said either.
    pub said_at: Option<OffsetDateTime>,
}

impl Consent {
    /// They asked to be left alone. Asked again, the first time is kept; said together with the opposite, it stands.
    #[must_use]
    pub fn withdrawn(self, at: OffsetDateTime) -> Self {
        if self.heard() > Some(at) {
            return self;
        }
        Self {
            opted_out_at: self.opted_out_at.or(Some(at)),
            said_at: Some(at),
        }
    }

    /// They want messages again.
    #[must_use]
    pub fn given(self, at: OffsetDateTime) -> Self {
        if self.heard() >= Some(at) {
            return self;
        }
        Self {
            opted_out_at: None,
            said_at: Some(at),
        }
    }

    /// The account decides, by the API, an import or a system of theirs. It counts as of now, and after everything that is
    /// recorded, whatever the clocks say. The store does the same in SQL, with the database's now.
    #[must_use]
    pub fn decided(self, opted_out: bool, now: OffsetDateTime) -> Self {
        let heard = self.heard();
        if opted_out {
            let at = heard.map_or(now, |heard| heard.max(now));
            return Self {
                opted_out_at: self.opted_out_at.or(Some(at)),
                said_at: Some(at),
            };
        }
        // WhatsApp's times are whole seconds: a refusal of this second is older if it is recorded, else it may be newer.
        let second = now.replace_nanosecond(0).unwrap_or(now);
        let at = match heard {
            Some(heard) if self.opted_out_at.is_some() && heard >= second => now.max(heard + Duration::MICROSECOND),
            Some(heard) => heard.max(second),
            None => second,
        };
        Self {
            opted_out_at: None,
            said_at: Some(at),
        }
    }

    fn heard(self) -> Option<OffsetDateTime> {
        self.said_at.max(self.opted_out_at)
    }
}

/// A contact, as far as news of senders can change it.
#[derive(Clone, PartialEq, Eq)]
pub struct Person {
    /// Its id.
    pub id: ContactId,
    /// Its name.
    pub name: String,
    /// E.164.
    pub phone: Option<String>,
    /// The number as the platform writes it.
    pub wa_id: Option<String>,
    /// The platform's user id.
    pub wa_user_id: Option<String>,
    /// Whether they want messages.
    pub consent: Consent,
}

redacted_debug!(Person { id, consent });

impl Person {
    /// Somebody nobody knew.
    pub fn unknown(id: ContactId, sender: &Sender) -> Self {
        Self {
            id,
            name: sender.display_name(),
            phone: sender.phone().map(|phone| phone.to_string()),
            wa_id: sender.wa_id.clone(),
            wa_user_id: sender.user_id.clone(),
            consent: Consent::default(),
        }
    }

    /// Whether both bear one number or id.
    pub(super) fn shares_id_with(&self, other: &Self) -> bool {
        let same = |own: &Option<String>, others: &Option<String>| own.is_some() && own == others;
        same(&self.phone, &other.phone) || same(&self.wa_id, &other.wa_id) || same(&self.wa_user_id, &other.wa_user_id)
    }
}

/// The sender's contact: by the canonical number, else by the number as written, else by the user id. Positions, so
/// that the people can be changed.
pub(super) fn find(people: &[Person], sender: &Sender) -> Option<usize> {
    let phone = sender.phone();
    let by = |same: &dyn Fn(&Person) -> bool| people.iter().position(same);
    phone
        .as_ref()
        .and_then(|phone| by(&|person| person.phone.as_deref() == Some(phone.as_str())))
        .or_else(|| {
            sender
                .wa_id
                .as_ref()
                .and_then(|id| by(&|person| person.wa_id.as_ref() == Some(id)))
        })
        .or_else(|| {
            sender
                .user_id
                .as_ref()
                .and_then(|id| by(&|person| person.wa_user_id.as_ref() == Some(id)))
        })
}

/// What the sender of a message shows of themselves is learned where it is missing; the ids, also where they are
/// others now. Nothing is taken from another contact.
pub(super) fn learn(people: &mut [Person], at: usize, sender: &Sender) {
    let phone = sender.phone().map(|phone| phone.to_string());
    let phone = phone.filter(|phone| is_free(people, at, |person| person.phone.as_ref() == Some(phone)));
    let wa_id = sender.wa_id.clone();
    let wa_id = wa_id.filter(|id| is_free(people, at, |person| person.wa_id.as_ref() == Some(id)));
    let user_id = sender.user_id.clone();
    let user_id = user_id.filter(|id| is_free(people, at, |person| person.wa_user_id.as_ref() == Some(id)));
    let Some(person) = people.get_mut(at) else { return };
    person.phone = person.phone.take().or(phone);
    person.wa_id = wa_id.or_else(|| person.wa_id.take());
    person.wa_user_id = user_id.or_else(|| person.wa_user_id.take());
}

/// Somebody is known by other ids now. All of it happens or, where any of it is another contact's, nothing.
pub(super) fn move_to(people: &mut [Person], at: usize, now: &Sender) {
    let phone = now.phone().map(|phone| phone.to_string());
    let free = is_free(people, at, |person| {
        (phone.is_some() && person.phone == phone)
            || (now.wa_id.is_some() && person.wa_id == now.wa_id)
            || (now.user_id.is_some() && person.wa_user_id == now.user_id)
    });
    let Some(person) = people.get_mut(at).filter(|_| free) else {
        return;
    };
    person.phone = phone.or_else(|| person.phone.take());
    person.wa_id = now.wa_id.clone().or_else(|| person.wa_id.take());
    person.wa_user_id = now.user_id.clone().or_else(|| person.wa_user_id.take());
}

/// Whether nobody else bears it.
fn is_free(people: &[Person], at: usize, bears: impl Fn(&Person) -> bool) -> bool {
    !people
        .iter()
        .enumerate()
        .any(|(position, person)| position != at && bears(person))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    fn sender(wa_id: Option<&str>, user_id: Option<&str>) -> Sender {
        Sender {
            wa_id: wa_id.map(str::to_owned),
            user_id: user_id.map(str::to_owned),
            name: None,
        }
    }

    fn person(id: u128, phone: Option<&str>, wa_id: Option<&str>, user_id: Option<&str>) -> Person {
        Person {
            id: ContactId(Uuid::from_u128(id)),
            name: "Ana".into(),
            phone: phone.map(str::to_owned),
            wa_id: wa_id.map(str::to_owned),
            wa_user_id: user_id.map(str::to_owned),
            consent: Consent::default(),
        }
    }

    #[test]
    fn the_words_count_as_a_whole_and_in_any_case() {
        for word in ["SAIR", "sair", " Parar\n", "stop", "\u{a0}Stop "] {
            assert!(is_opt_out(word), "{word}");
        }
        for word in ["", "SAIR!", "quero sair", "sa ir", "parar de", "unstop", "START"] {
            assert!(!is_opt_out(word), "{word}");
        }
    }

    #[test]
    fn a_sender_is_found_by_canonical_number_then_raw_then_user_id() {
        let people = [
            person(1, None, Some("553188887777"), None),
            person(2, Some("+5531988887777"), None, None),
            person(3, None, Some("999"), Some("BR.1")),
            person(4, None, None, Some("BR.2")),
        ];
        let found = |wa_id, user_id| find(&people, &sender(wa_id, user_id));
        assert_eq!(found(Some("553188887777"), Some("BR.1")), Some(1));
        assert_eq!(found(Some("5531988887777"), None), Some(1));
        assert_eq!(found(Some("999"), Some("BR.2")), Some(2));
        assert_eq!(found(Some("5511961234567"), Some("BR.2")), Some(3));
        assert_eq!(found(None, Some("BR.2")), Some(3));
        assert_eq!(found(None, Some("BR.9")), None);
        assert_eq!(found(None, None), None);
    }

    #[test]
    fn ids_are_learned_only_when_free() {
        let mut people = [
            person(1, Some("+5531988887777"), None, None),
            person(2, None, None, Some("BR.2")),
        ];
        learn(&mut people, 0, &sender(Some("553188887777"), Some("BR.2")));
        assert_eq!(
            (people[0].wa_id.as_deref(), people[0].wa_user_id.as_deref()),
            (Some("553188887777"), None)
        );
        learn(&mut people, 0, &sender(None, Some("BR.1")));
        assert_eq!(people[0].wa_user_id.as_deref(), Some("BR.1"));
        // A number that somebody has is not learned by anybody else; a free one is, and never replaces one.
        learn(&mut people, 1, &sender(Some("553188887777"), Some("BR.2")));
        assert_eq!((people[1].phone.as_deref(), people[1].wa_id.as_deref()), (None, None));
        learn(&mut people, 1, &sender(Some("5511961234567"), None));
        learn(&mut people, 1, &sender(Some("5511961234568"), None));
        assert_eq!(
            (people[1].phone.as_deref(), people[1].wa_id.as_deref()),
            (Some("+5511961234567"), Some("5511961234568"))
        );
    }

    #[test]
    fn somebody_moves_whole_or_not_at_all() {
        let mut people = [
            person(1, Some("+5511961111111"), Some("5511961111111"), Some("BR.1")),
            person(2, Some("+5511962222222"), None, Some("BR.2")),
        ];
        let before = people.clone();
        move_to(&mut people, 0, &sender(Some("5511962222222"), Some("BR.9")));
        move_to(&mut people, 0, &sender(None, Some("BR.2")));
        assert_eq!(people, before);
        move_to(&mut people, 0, &sender(Some("553188887777"), Some("BR.9")));
        assert_eq!(
            people[0],
            person(1, Some("+5531988887777"), Some("553188887777"), Some("BR.9"))
        );
        move_to(&mut people, 0, &sender(None, Some("BR.10")));
        assert_eq!(people[0].wa_user_id.as_deref(), Some("BR.10"));
        assert_eq!(people[0].phone.as_deref(), Some("+5531988887777"));
    }

    #[test]
    fn a_contact_is_called_what_they_call_themselves() {
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

    /// A wish as WhatsApp reports it: whether they want messages, and since which second.
    type Wish = (bool, i64);

    fn reported(consent: Consent, (wanted, second): Wish) -> Consent {
        match wanted {
            true => consent.given(at(second)),
            false => consent.withdrawn(at(second)),
        }
    }

    /// What counts of a state. Which refusal came first is known of reports in their order alone.
    fn standing(consent: Consent) -> (bool, Option<OffsetDateTime>) {
        (consent.opted_out_at.is_some(), consent.said_at)
    }

    #[test]
    fn decision_of_the_account_is_not_undone_by_older_events() {
        let now = at(10) + Duration::milliseconds(500);
        let out = Consent::default().withdrawn(at(3));
        let back = out.decided(false, now);
        assert_eq!(back.opted_out_at, None);
        assert_eq!(back.withdrawn(at(3)), back);
        assert_eq!(back.withdrawn(at(9)), back);
        assert_eq!(back.withdrawn(at(10)).opted_out_at, Some(at(10)), "it may be newer");
        // Known already, it is older.
        let back = out.withdrawn(at(10)).decided(false, now);
        assert_eq!((back.opted_out_at, back.withdrawn(at(10))), (None, back));
        let out = Consent::default().given(at(3)).decided(true, now);
        assert_eq!((out.opted_out_at, out.given(at(10))), (Some(now), out));
        assert_eq!(out.given(at(11)).opted_out_at, None);
        assert_eq!(
            out.decided(true, at(12)).opted_out_at,
            Some(now),
            "the first time counts"
        );
    }

    fn wishes() -> impl Strategy<Value = Vec<Wish>> {
        prop::collection::vec((any::<bool>(), 0_i64..6), 0..8)
    }

    proptest! {
        /// Whatever order the wishes come in, and however often, the latest one stands. Of one second, the refusal does.
        #[test]
        fn latest_wish_stands(mut wishes in prop::collection::vec((any::<bool>(), 0_i64..6), 1..8), seed in any::<prop::sample::Index>()) {
            let copied = wishes[seed.index(wishes.len())];
            wishes.push(copied);
            let consent = wishes.iter().copied().fold(Consent::default(), reported);
            let latest = |which: bool| wishes.iter().filter(|(wanted, _)| *wanted == which).map(|(_, second)| *second).max();
            let (refused, wanted) = (latest(false), latest(true));
            prop_assert_eq!(standing(consent), (refused >= wanted && refused.is_some(), refused.max(wanted).map(at)), "{:?}", wishes);
        }

        /// Events before and after a decision of the account may come in any order and any number of times; decisions
        /// count in their own order, also where the account's clock is behind.
        #[test]
        fn order_of_events_around_decisions_changes_nothing(
            rounds in prop::collection::vec((wishes(), any::<bool>(), 0_i64..60), 1..4), last in wishes(), reverse in any::<bool>(),
        ) {
            let run = |shuffled: bool| {
                let told = |consent: Consent, wishes: &[Wish]| {
                    let mut wishes = wishes.to_vec();
                    if shuffled {
                        wishes.sort_unstable();
                        wishes.extend(wishes.clone());
                    }
                    if shuffled && reverse {
                        wishes.reverse();
                    }
                    wishes.into_iter().fold(consent, reported)
                };
                let decided = rounds.iter().fold(Consent::default(), |consent, (wishes, opted_out, tenths)| {
                    told(consent, wishes).decided(*opted_out, EPOCH + Duration::milliseconds(tenths * 100))
                });
                (decided, told(decided, &last))
            };
            let (decided, end) = run(false);
            prop_assert_eq!(standing(end), standing(run(true).1));
            let (_, opted_out, _) = &rounds[rounds.len() - 1];
            prop_assert_eq!(decided.opted_out_at.is_some(), *opted_out, "a decision counts at once");
            // What was reported before the decision, reported again, does not undo it.
            let known: Vec<Wish> = rounds.iter().flat_map(|(wishes, ..)| wishes.clone()).collect();
            let newest = known.iter().map(|(_, second)| at(*second)).max();
            if newest < decided.said_at {
                prop_assert_eq!(known.iter().copied().fold(decided, reported), decided, "{:?}", known);
            }
        }
    }
}
