//! The work on a queue, over mocked ports.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use time::Duration;

use super::*;
use crate::campaigns::{Burst, MockSendRateLimiter, SendResult, SlotTime, Worker};
use crate::media::tests::{FakeMediaStore, media};
use crate::messaging::{
    Addressee, BlockCause, ErrorClass, MessageContent, MockWhatsappGateway, SendOutcome, ThrottleScope,
};
use crate::shared::{MockCipher, MockShutdown, MockTimer, ProfileId};
use crate::whatsapp::{MessageFiles, MockFileIdStore, StoredProfile};

const NUMBER: ProfileId = ProfileId(Uuid::from_u128(4));

const QUEUE: NumberQueue = NumberQueue {
    account_id: AccountId(Uuid::from_u128(9)),
    profile_id: Some(NUMBER),
};

/// What the queue was told, in order.
type Steps = Arc<Mutex<Vec<String>>>;

fn text_message(id: u128) -> LeavingMessage {
    LeavingMessage {
        id: Uuid::from_u128(id).into(),
        attempts: 0,
        to: Addressee::Phone("+5511961234567".into()),
        content: LeavingContent::FreeForm(MessageContent::Text("Oi".into())),
        wa_id: None,
    }
}

/// A queue in which these messages are due.
fn queue(inputs: QueueInputs, due: Vec<LeavingMessage>, steps: &Steps) -> MockDirectMessageQueue {
    let mut queue = MockDirectMessageQueue::new();
    queue.expect_inputs().return_once(move |_| Ok(Some(inputs)));
    let due = Arc::new(Mutex::new(due));
    let waiting = due.clone();
    queue
        .expect_due()
        .returning(move |_, limit| Ok(limit.min(u32::try_from(waiting.lock().unwrap().len()).unwrap())));
    let log = steps.clone();
    queue.expect_start().returning(move |_, _, limit, _, is_removed| {
        let mut due = due.lock().unwrap();
        let size = due.len().min(usize::try_from(limit).unwrap());
        log.lock()
            .unwrap()
            .push(format!("start {size}{}", if is_removed { " removed" } else { "" }));
        let started: Vec<_> = due.drain(..size).collect();
        Ok(Some(if is_removed { vec![] } else { started }))
    });
    let log = steps.clone();
    queue.expect_record().returning(move |_, results| {
        let kinds = results.iter().map(|(_, result)| match result {
            SendResult::Sent { .. } => "sent",
            SendResult::Failed { .. } => "failed",
            SendResult::Released => "released",
            SendResult::Unknown => "unknown",
            SendResult::Deferred { .. } => "again",
            SendResult::Throttled { .. } => "again throttled",
        });
        log.lock().unwrap().extend(kinds.map(str::to_owned));
        Ok(())
    });
    let log = steps.clone();
    queue.expect_release().returning(move |_, _| {
        log.lock().unwrap().push("release".into());
        Ok(())
    });
    let log = steps.clone();
    queue.expect_hold().returning(move |_, _, reason, _| {
        log.lock().unwrap().push(format!("hold {reason}"));
        Ok(())
    });
    let log = steps.clone();
    queue.expect_hand_over().returning(move |_, _, number| {
        log.lock().unwrap().push(format!("hand over to {number}"));
        Ok(())
    });
    queue
}

fn messenger(queue: MockDirectMessageQueue, outcome: SendOutcome) -> Messenger {
    let mut gateway = MockWhatsappGateway::new();
    gateway.expect_send_message().returning(move |_, _| outcome.clone());
    let mut cipher = MockCipher::new();
    cipher.expect_open().returning(|_, _| Some("token".into()));
    let mut limiter = MockSendRateLimiter::new();
    limiter.expect_limit().return_const(None);
    limiter
        .expect_reserve()
        .returning(|_, burst: Burst| Ok(SlotTime(burst.time)));
    limiter.expect_since().return_const(Duration::ZERO);
    limiter.expect_until().returning(|_, _| ());
    limiter.expect_slow_down().returning(|_, _| Ok(()));
    let mut timer = MockTimer::new();
    timer.expect_sleep().returning(|_| ());
    let mut shutdown = MockShutdown::new();
    shutdown.expect_is_stopping().return_const(false);
    shutdown.expect_stopped().returning(|| ());
    Messenger {
        queue: Arc::new(queue),
        gateway: Arc::new(gateway),
        files: MessageFiles::new(
            media(&Arc::new(FakeMediaStore::default())),
            Arc::new(MockFileIdStore::new()),
        ),
        content_files: content_files(),
        cipher: Arc::new(cipher),
        limiter: Arc::new(limiter),
        timer: Arc::new(timer),
        shutdown: Arc::new(shutdown),
        worker: Worker {
            id: Uuid::from_u128(7),
            delay: Duration::milliseconds(200),
        },
    }
}

fn verified() -> QueueInputs {
    QueueInputs {
        profile: Some(StoredProfile::for_tests(NUMBER, NOW)),
        is_active: true,
        held: None,
        successor: None,
    }
}

fn run(inputs: QueueInputs, due: Vec<LeavingMessage>, outcome: SendOutcome) -> (QueueEnd, Vec<String>) {
    let steps = Steps::default();
    let messenger = messenger(queue(inputs, due, &steps), outcome);
    let end = messenger.run(QUEUE).now_or_never().unwrap().unwrap();
    let steps = steps.lock().unwrap().clone();
    (end, steps)
}

fn accepted() -> SendOutcome {
    SendOutcome::Accepted {
        message_id: "wamid".into(),
        wa_id: None,
    }
}

fn blocked(cause: BlockCause) -> SendOutcome {
    SendOutcome::RunBlocked {
        code: 190,
        cause,
        message: "refused".into(),
    }
}

#[test]
fn due_messages_start_before_they_are_called_and_are_recorded() {
    let (end, steps) = run(verified(), vec![text_message(1), text_message(2)], accepted());
    assert_eq!(end, QueueEnd::Empty);
    assert_eq!(steps, ["start 1", "sent", "start 1", "sent", "release"]);
}

#[test]
fn queue_whose_number_or_account_may_not_send_is_held() {
    let mut unverified = verified();
    let profile = unverified.profile.as_mut().unwrap();
    profile.profile.verification.state = crate::whatsapp::verification::VerificationState::Pending;
    let (end, steps) = run(unverified, vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (QueueEnd::Held(HoldReason::Number), vec!["hold number".to_owned()])
    );
    let suspended = QueueInputs {
        is_active: false,
        ..verified()
    };
    let (end, steps) = run(suspended, vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (QueueEnd::Held(HoldReason::Suspended), vec!["hold suspended".to_owned()])
    );
}

#[test]
fn refusal_of_the_number_holds_the_queue_and_one_of_the_template_fails_the_message() {
    let due = || vec![text_message(1), text_message(2)];
    let (end, steps) = run(verified(), due(), blocked(BlockCause::Token));
    assert_eq!(end, QueueEnd::Held(HoldReason::Number));
    assert_eq!(steps, ["start 1", "released", "hold number"]);
    for cause in [
        BlockCause::Template,
        BlockCause::TemplatePaused,
        BlockCause::TemplateDisabled,
    ] {
        let (end, steps) = run(verified(), due(), blocked(cause));
        assert_eq!(end, QueueEnd::Empty);
        assert_eq!(steps, ["start 1", "failed", "start 1", "failed", "release"]);
    }
}

#[test]
fn doubtful_call_is_unknown_and_a_rejection_fails() {
    let doubtful = SendOutcome::Unknown { detail: "reset".into() };
    let (_, steps) = run(verified(), vec![text_message(1)], doubtful);
    assert_eq!(steps, ["start 1", "unknown", "release"]);
    let rejected = SendOutcome::Failed {
        code: 131_026,
        class: ErrorClass::RecipientUnreachable,
        message: "no".into(),
    };
    let (_, steps) = run(verified(), vec![text_message(1)], rejected);
    assert_eq!(steps, ["start 1", "failed", "release"]);
}

/// It slows the number down, and is tried five times in all.
#[test]
fn message_of_a_throttled_number_is_tried_again_a_few_times() {
    let throttled = SendOutcome::Throttled {
        code: Some(130_429),
        scope: Some(ThrottleScope::PhoneNumber),
        message: "too many".into(),
        retry_after: None,
    };
    let message = |attempts| LeavingMessage {
        attempts,
        ..text_message(1)
    };
    let (_, steps) = run(verified(), vec![message(4)], throttled.clone());
    assert_eq!(steps, ["start 1", "again throttled", "release"]);
    let (_, steps) = run(verified(), vec![message(5)], throttled);
    assert_eq!(steps, ["start 1", "failed", "release"]);
}

#[test]
fn messages_of_a_removed_number_are_not_called() {
    let removed = QueueInputs {
        profile: None,
        ..verified()
    };
    let (end, steps) = run(removed, vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (
            QueueEnd::Empty,
            vec!["start 1 removed".to_owned(), "release".to_owned()]
        )
    );
}

#[test]
fn queue_of_an_account_that_connected_a_number_is_handed_over() {
    let inputs = |is_verified| QueueInputs {
        profile: None,
        successor: Some(NumberChoice {
            id: NUMBER,
            is_verified,
        }),
        ..verified()
    };
    let (end, steps) = run(inputs(true), vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (QueueEnd::HandedOver, vec![format!("hand over to {NUMBER}")])
    );
    let (end, steps) = run(inputs(false), vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (QueueEnd::Held(HoldReason::Number), vec!["hold number".to_owned()])
    );
}

/// The queue is due because a message expired. WhatsApp, which refused the number, is not asked again.
#[test]
fn queue_that_is_still_held_calls_nothing() {
    let held = QueueInputs {
        held: Some((HoldReason::Number, Duration::SECOND)),
        ..verified()
    };
    let (end, steps) = run(held, vec![text_message(1)], accepted());
    assert_eq!(
        (end, steps),
        (QueueEnd::Held(HoldReason::Number), vec!["hold number".to_owned()])
    );
}

#[test]
fn lost_queue_is_left_to_its_new_worker() {
    let mut queue = MockDirectMessageQueue::new();
    queue.expect_inputs().return_once(|_| Ok(Some(verified())));
    queue.expect_due().returning(|_, _| Ok(1));
    queue.expect_start().return_once(|_, _, _, _, _| Ok(None));
    let end = messenger(queue, accepted()).run(QUEUE).now_or_never().unwrap().unwrap();
    assert_eq!(end, QueueEnd::Lost);
}

#[test]
fn rejected_parameters_do_not_hold_the_messages_of_others() {
    let rejected = SendOutcome::Failed {
        code: 132_000,
        class: ErrorClass::ParameterFormat,
        message: "parameters".into(),
    };
    let (end, steps) = run(verified(), (1..=30).map(text_message).collect(), rejected);
    assert_eq!(end, QueueEnd::Empty);
    assert_eq!(steps.iter().filter(|step| *step == "failed").count(), 30);
}
