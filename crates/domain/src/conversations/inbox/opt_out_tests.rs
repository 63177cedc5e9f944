//! Tests of opt-outs by a word, and of the replies to them.

use time::Duration;
use uuid::Uuid;

use super::super::{OptOutReply, OptOutWord};
use super::tests::{T, apply, contact, existing_contact, message};
use super::*;
use crate::shared::UserId;

const NONE: [OffsetDateTime; 0] = [];

fn with_reply(inbox: Inbox) -> Inbox {
    inbox.with_opt_outs(OptOutRules {
        words: vec![OptOutWord {
            text: "cancelar".into(),
            since: T,
        }],
        reply: Some(OptOutReply {
            text: "Pronto!".into(),
            set_by: UserId(Uuid::nil()),
        }),
    })
}

fn answered(inbox: Inbox, events: Vec<InboundEvent>) -> Vec<OffsetDateTime> {
    let answers = apply(inbox, events).opt_out_answers;
    answers.into_iter().map(|answer| answer.window_ends_at).collect()
}

/// [`number`] reads the clock one day after `T`, so that the window of a message from minute 0 is over.
#[test]
fn opt_out_is_answered_once_and_inside_the_window() {
    let ana = |id: &str, text: &str, minutes| message(id, "5511961234567", text, minutes);
    let ends = |minutes| T + Duration::minutes(minutes) + Duration::days(1);
    let (inbox, ..) = existing_contact();
    let repeated = vec![ana("x", "Cancelar ", 2), ana("y", "sair", 3), ana("x", "Cancelar ", 2)];
    assert_eq!(answered(with_reply(inbox.clone()), repeated), [ends(2)]);
    assert_eq!(
        answered(with_reply(inbox.clone()), vec![ana("x", "sair agora", 2)]),
        NONE
    );
    assert_eq!(
        answered(with_reply(inbox.clone()), vec![ana("x", "sair", 0)]),
        NONE,
        "its window is over"
    );
    assert_eq!(answered(inbox, vec![ana("x", "sair", 2)]), NONE, "no reply is set");
    assert_eq!(
        answered(with_reply(Inbox::default()), vec![ana("x", "stop", 2)]),
        [ends(2)],
        "of a new contact"
    );
}

#[test]
fn opt_out_of_one_who_had_opted_out_is_not_answered() {
    let out = |mut contact: ContactIdentity| {
        contact.consent = contact.consent.with_opt_out(T - Duration::HOUR);
        contact
    };
    let ana = || contact(1, Some("+5511961234567"), None);
    let sair = || vec![message("x", "5511961234567", "sair", 2)];
    let inbox = |contacts| with_reply(Inbox::new(contacts, vec![], [].into()));
    assert_eq!(answered(inbox(vec![out(ana())]), sair()), NONE);
    let mut linked = contact(2, None, Some("BR.2"));
    linked.same_person_as = Some(ana().id);
    assert_eq!(answered(inbox(vec![ana(), out(linked.clone())]), sair()), NONE);
    assert_eq!(answered(inbox(vec![ana(), linked]), sair()).len(), 1);
    let unrelated = out(contact(3, None, Some("BR.3")));
    assert_eq!(answered(inbox(vec![ana(), unrelated]), sair()).len(), 1);
    // An opt-out from before an opt-in changes nothing.
    let mut back = ana();
    back.consent = back.consent.with_opt_in(T + Duration::HOUR);
    assert_eq!(answered(inbox(vec![back]), sair()), NONE);
}

/// What the store compares with the opt-outs of erased contacts.
#[test]
fn added_identifiers_are_those_that_a_contact_did_not_have() {
    use crate::contacts::{AddedIdentifiers, Identifier};

    let with_id = |event| match event {
        InboundEvent::Message(mut message) => {
            message.sender.user_id = Some("BR.1".into());
            InboundEvent::Message(message)
        }
        event => event,
    };
    let (inbox, existing, _) = existing_contact();
    let known = message("x", "5511961234567", "oi", 2);
    assert_eq!(apply(inbox.clone(), vec![known.clone()]).added, []);
    let id = existing.id.0;
    let identifiers = [Identifier::user_id("BR.1")];
    let added = apply(inbox.clone(), vec![with_id(known)]).added;
    assert!(added.iter().all(|contact| contact.id == id), "{added:?}");
    assert!(
        added
            .iter()
            .flat_map(|contact| &contact.identifiers)
            .all(|found| identifiers.contains(found))
            && !added.is_empty()
    );
    // The message itself decides, unless the erasure is newer: the store knows its time.
    let opts_out = with_id(message("y", "5511961234567", "sair", 2));
    assert_eq!(apply(inbox, vec![opts_out]).added, added);
    let new = apply(Inbox::default(), vec![message("z", "5531988887777", "oi", 2)]);
    let phone = AddedIdentifiers::new(new.new_contacts[0].id.0, Some("+5531988887777"), None);
    assert_eq!(new.added, [phone]);
}
