//! User ids of recipients in status updates: which accounts store them.

use super::*;
use crate::callbacks::NamedRecipient;
use crate::conversations::Sender;
use crate::shared::SendId;

fn named(user_id: Option<&str>) -> CallbackChange {
    let CallbackChange::Status(mut status) = status_change("a") else {
        panic!()
    };
    status.update.send_id = Some(SendId(Uuid::from_u128(5)));
    status.recipient = Some(Sender {
        wa_id: Some("5511961234567".into()),
        user_id: user_id.map(str::to_owned),
        ..Sender::default()
    });
    CallbackChange::Status(status)
}

/// How often the new ids were looked up, and how often an account received one. The number of account B is not verified.
async fn received(change: CallbackChange, new: bool) -> (usize, usize) {
    let mut store = MockCallbackStore::new();
    store.expect_accounts_that_had_number().returning(|_| Ok(vec![A]));
    store.expect_delete().returning(|_| Ok(()));
    let (asked, given) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (asking, giving) = (asked.clone(), given.clone());
    let mut updates = MockStatusUpdateStore::new();
    updates.expect_apply().returning(|_, _| Ok(vec![]));
    updates.expect_new_recipients().returning(move |account, recipients| {
        assert_eq!(account, A);
        *asking.lock().unwrap() += 1;
        Ok(if new { recipients.to_vec() } else { vec![] })
    });
    let mut inbox = MockInboxStore::new();
    inbox.expect_receive().returning(move |account, number, items| {
        assert_eq!((account, number, items.len()), (A, "1065", 1));
        assert!(matches!(&items[0].event, InboundEvent::Recipient { .. }));
        *giving.lock().unwrap() += 1;
        Ok(ReceiveOutcome::Received)
    });
    let mut holders = MockNumberHolderStore::new();
    holders.expect_holders_of_number().returning(|_| {
        Ok(vec![
            holder(A, VerificationState::Verified),
            holder(B, VerificationState::Pending),
        ])
    });
    let stores = CallbackStores {
        callbacks: Arc::new(store),
        status_updates: Arc::new(updates),
        inbox: Arc::new(inbox),
        holders: Arc::new(noted(holders)),
        templates: Arc::new(MockTemplateStore::new()),
        runs: Arc::new(MockRunStore::new()),
    };
    let callbacks = build(stores, MockHeldMessageStore::new(), MockCallbackReport::new());
    callbacks.process(&callback(0, vec![change])).await.unwrap();
    (*asked.lock().unwrap(), *given.lock().unwrap())
}

#[tokio::test]
async fn new_user_id_of_a_recipient_goes_through_the_inbox() {
    assert_eq!(received(named(Some("BR.1")), true).await, (1, 1));
    assert_eq!(received(named(Some("BR.1")), false).await, (1, 0));
    assert_eq!(received(named(None), true).await, (0, 0));
    let CallbackChange::Status(status) = named(Some("BR.1")) else {
        panic!()
    };
    let recipient = NamedRecipient::of(&status).unwrap();
    assert_eq!(
        (recipient.send_id.0, recipient.at),
        (Uuid::from_u128(5), status.update.at)
    );
}
