//! What a status update says of the recipient of a message.

use super::tests::{T, apply, contact};
use super::*;

#[test]
fn named_recipient_gets_its_user_id_and_makes_no_contact() {
    let named = |wa_id: Option<&str>, user_id: &str| InboundEvent::Recipient {
        recipient: Sender {
            wa_id: wa_id.map(str::to_owned),
            user_id: Some(user_id.into()),
            ..Sender::default()
        },
        at: T,
    };
    let inbox = || {
        let contacts = vec![contact(1, Some("+5511961234567"), None), contact(2, None, Some("BR.2"))];
        Inbox::new(contacts, vec![], [].into())
    };
    let changes = apply(inbox(), vec![named(Some("551161234567"), "BR.1")]);
    assert_eq!(changes.changed[0].wa_user_id.as_deref(), Some("BR.1"));
    assert_eq!((changes.user_ids.len(), changes.same_persons), (1, 0));
    let changes = apply(inbox(), vec![named(Some("551161234567"), "BR.2")]);
    assert_eq!((changes.changed.len(), changes.same_persons), (2, 1));
    assert_eq!(
        apply(inbox(), vec![named(None, "BR.3")]),
        InboxChanges::default(),
        "nobody is known by this id"
    );
}
