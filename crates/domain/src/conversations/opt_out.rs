//! Opt-outs by a word, and the reply to them.

use time::OffsetDateTime;

use super::ContactIdentity;
use crate::messaging::WINDOW;
use crate::shared::{ContactId, MessageId, UserId, redacted_debug};

/// A message that consists of one of these words opts the contact out, in every account.
const BUILT_IN: [&str; 3] = ["SAIR", "PARAR", "STOP"];

/// The account's settings about opt-outs by a word.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OptOutRules {
    /// The account's words beside the built-in ones.
    pub words: Vec<OptOutWord>,
    /// None: an opt-out has no reply.
    pub reply: Option<OptOutReply>,
}

redacted_debug!(OptOutRules {});

/// A word of the account.
#[derive(Clone, PartialEq, Eq)]
pub struct OptOutWord {
    pub text: String,
    /// Messages that were written earlier do not opt out by it. WhatsApp reports the time of a message in whole seconds.
    pub since: OffsetDateTime,
}

redacted_debug!(OptOutWord { since });

impl OptOutWord {
    fn counts_at(&self, at: OffsetDateTime) -> bool {
        at.unix_timestamp() >= self.since.unix_timestamp()
    }
}

/// How opt-out words are compared.
pub fn comparable_word(text: &str) -> String {
    text.trim().to_uppercase()
}

/// The reply to an opt-out.
#[derive(Clone, PartialEq, Eq)]
pub struct OptOutReply {
    pub text: String,
    /// The user who set it.
    pub set_by: UserId,
}

redacted_debug!(OptOutReply { set_by });

/// A contact that opted out and gets a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptOutAnswer {
    pub contact_id: ContactId,
    /// The message that opted the contact out.
    pub message_id: MessageId,
    /// When the service window of its message ends.
    pub window_ends_at: OffsetDateTime,
}

impl OptOutRules {
    /// Whether the whole text, which was written at `at`, is an opt-out word, in any case and between spaces.
    pub fn is_opt_out(&self, text: &str, at: OffsetDateTime) -> bool {
        let text = comparable_word(text);
        let mut words = self.words.iter().filter(|word| word.counts_at(at));
        BUILT_IN.contains(&text.as_str()) || words.any(|word| comparable_word(&word.text) == text)
    }

    /// The reply to a message that opted its contact out. A contact that had opted out before, also as another contact
    /// of the same person, gets none.
    pub(super) fn answer(
        &self,
        contacts: &[ContactIdentity],
        contact: &ContactIdentity,
        (message_id, written_at): (MessageId, OffsetDateTime),
        now: OffsetDateTime,
    ) -> Option<OptOutAnswer> {
        self.reply.as_ref()?;
        let others = contacts.iter().filter(|other| is_same_person(contact, other));
        if others.into_iter().any(|other| other.consent.opted_out_at.is_some()) {
            return None;
        }
        let window_ends_at = written_at.checked_add(WINDOW)?;
        (now < window_ends_at).then_some(OptOutAnswer {
            contact_id: contact.id,
            message_id,
            window_ends_at,
        })
    }
}

/// Whether another contact is the same person: one of them names the other, or both name a third.
fn is_same_person(contact: &ContactIdentity, other: &ContactIdentity) -> bool {
    let (named, named_by_other) = (contact.same_person_as, other.same_person_as);
    let is_linked = named == Some(other.id) || named_by_other == Some(contact.id) || named == named_by_other;
    contact.id != other.id && (named.is_some() || named_by_other.is_some()) && is_linked
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const T: OffsetDateTime = datetime!(2026-03-02 12:00:00.7 UTC);

    fn word(text: &str) -> OptOutWord {
        OptOutWord {
            text: text.to_owned(),
            since: T,
        }
    }

    #[test]
    fn opt_out_word_of_the_account_never_works_backward() {
        let rules = OptOutRules {
            words: vec![word("fim")],
            reply: None,
        };
        let second = datetime!(2026-03-02 12:00 UTC);
        assert!(rules.is_opt_out("fim", second) && rules.is_opt_out("fim", second + Duration::DAY));
        assert!(!rules.is_opt_out("fim", second - Duration::SECOND));
        assert!(rules.is_opt_out("sair", second - Duration::DAY));
    }

    #[test]
    fn opt_out_word_counts_alone_in_any_case() {
        let rules = OptOutRules {
            words: ["Cancelar", "não quero", " fim "].map(word).into(),
            reply: None,
        };
        for word in ["SAIR", "sair", " Parar\n", "stop", "\u{a0}Stop ", "Sair "] {
            assert!(
                OptOutRules::default().is_opt_out(word, T) && rules.is_opt_out(word, T),
                "{word}"
            );
        }
        for word in ["cancelar", " CANCELAR\n", "NÃO QUERO", "Fim"] {
            assert!(
                rules.is_opt_out(word, T) && !OptOutRules::default().is_opt_out(word, T),
                "{word}"
            );
        }
        for word in [
            "",
            "SAIR!",
            "sair agora",
            "quero sair",
            "sa ir",
            "parar de",
            "unstop",
            "START",
            "cancelar já",
            "nao quero",
        ] {
            assert!(!rules.is_opt_out(word, T), "{word}");
        }
    }
}
