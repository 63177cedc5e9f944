//! Mail worker: claims, sends and deletes mails. A failed mail is retried with growing delays and finally abandoned.

use std::sync::{Arc, Mutex, PoisonError};

use time::Duration;

use super::{ClaimedMail, MailError, MailQueue, Mailer};
use crate::shared::{AccountId, Cipher, MailId, StoreError};

/// Lease of a claimed mail. MUST be longer than any send takes.
const LEASE: Duration = Duration::minutes(2);

/// Delay after each failed attempt. After the last one the mail is abandoned.
const RETRY_DELAYS: [Duration; 7] = [
    Duration::minutes(1),
    Duration::minutes(5),
    Duration::minutes(30),
    Duration::hours(2),
    Duration::hours(5),
    Duration::hours(10),
    Duration::hours(10),
];

/// Returns the delay after this many failed attempts; `None` if the mail is abandoned.
pub fn retry_after(attempts: u32) -> Option<Duration> {
    let position = usize::try_from(attempts.checked_sub(1)?).ok()?;
    RETRY_DELAYS.get(position).copied()
}

/// Outcome of one worker iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailOutcome {
    /// No mail is due.
    Nothing,
    Sent,
    /// Failed; retried after `delay`.
    Deferred {
        id: MailId,
        cause: MailError,
        delay: Duration,
    },
    /// Abandoned: the mail is invalid or all attempts failed.
    GivenUp {
        id: MailId,
        account_id: AccountId,
        attempts: u32,
        cause: MailError,
    },
}

/// Sends queued mails.
pub struct MailSender {
    queue: Arc<dyn MailQueue>,
    mailer: Arc<dyn Mailer>,
    cipher: Arc<dyn Cipher>,
    /// The account whose mail was claimed last. The next claim starts behind it (round robin).
    previous: Mutex<Option<AccountId>>,
}

impl MailSender {
    pub fn new(queue: Arc<dyn MailQueue>, mailer: Arc<dyn Mailer>, cipher: Arc<dyn Cipher>) -> Self {
        Self {
            queue,
            mailer,
            cipher,
            previous: Mutex::default(),
        }
    }

    /// Sends one mail of the account whose turn it is. At-least-once: a crash between sending and deleting sends it
    /// again.
    pub async fn deliver_next(&self) -> Result<MailOutcome, StoreError> {
        let Some(claimed) = self.claim().await? else {
            return Ok(MailOutcome::Nothing);
        };
        let id = claimed.mail.id;
        let cause = match self.send(&claimed).await {
            Ok(()) => {
                self.queue.delete(id).await?;
                return Ok(MailOutcome::Sent);
            }
            Err(cause) => cause,
        };
        let delay = match cause {
            MailError::Unsendable(_) => None,
            MailError::Failed(_) => retry_after(claimed.attempts),
        };
        match delay {
            Some(delay) => {
                self.queue.defer(id, claimed.attempts, delay).await?;
                Ok(MailOutcome::Deferred { id, cause, delay })
            }
            None => {
                self.queue.delete(id).await?;
                Ok(MailOutcome::GivenUp {
                    id,
                    account_id: claimed.account_id,
                    attempts: claimed.attempts,
                    cause,
                })
            }
        }
    }

    async fn claim(&self) -> Result<Option<ClaimedMail>, StoreError> {
        let previous = *self.previous.lock().unwrap_or_else(PoisonError::into_inner);
        let claimed = self.queue.claim(LEASE, previous).await?;
        if let Some(claimed) = &claimed {
            *self.previous.lock().unwrap_or_else(PoisonError::into_inner) = Some(claimed.account_id);
        }
        Ok(claimed)
    }

    async fn send(&self, claimed: &ClaimedMail) -> Result<(), MailError> {
        let Some(mail) = claimed.open(self.cipher.as_ref()) else {
            // A process with the missing secret may open it.
            return Err(MailError::Failed("its sealed content cannot be opened".to_owned()));
        };
        self.mailer.send(claimed.mail.id, &mail).await
    }
}

#[cfg(test)]
mod tests {
    use secrecy::{ExposeSecret, SecretString};
    use uuid::Uuid;

    use super::super::{Mail, MockMailQueue, MockMailer, OutgoingMail};
    use super::*;
    use crate::shared::{MockCipher, SealContext, SealPurpose, Sealed};

    const ID: MailId = MailId(Uuid::from_u128(1));
    const ACCOUNT: AccountId = AccountId(Uuid::from_u128(2));

    fn mail() -> Mail {
        Mail {
            to: "bia@example.com".into(),
            subject: "Join Loja on Recado".into(),
            text: "secret link".into(),
        }
    }

    /// Fake cipher that reverses the bytes, so that sealed content differs from the plain text.
    fn cipher() -> MockCipher {
        let mut cipher = MockCipher::new();
        cipher
            .expect_seal()
            .returning(|secret, _| Sealed(secret.expose_secret().bytes().rev().collect()));
        cipher.expect_open().returning(|sealed, context| {
            assert_eq!(context, &SealContext::new(SealPurpose::QueuedMail, ACCOUNT, ID));
            let text: Vec<u8> = sealed.0.iter().rev().copied().collect();
            String::from_utf8(text).ok().map(SecretString::from)
        });
        cipher
    }

    fn claimed(attempts: u32) -> ClaimedMail {
        ClaimedMail {
            mail: OutgoingMail::seal(&cipher(), ACCOUNT, ID, &mail()),
            account_id: ACCOUNT,
            attempts,
        }
    }

    fn queue(claimed: Option<ClaimedMail>) -> MockMailQueue {
        let mut queue = MockMailQueue::new();
        queue.expect_claim().return_once(|_, _| Ok(claimed));
        queue
    }

    fn mailer(result: Result<(), MailError>) -> MockMailer {
        let mut mailer = MockMailer::new();
        mailer
            .expect_send()
            .withf(|id, sent| (*id, sent) == (ID, &mail()))
            .return_once(|_, _| result);
        mailer
    }

    async fn deliver(queue: MockMailQueue, mailer: MockMailer) -> MailOutcome {
        let sender = MailSender::new(Arc::new(queue), Arc::new(mailer), Arc::new(cipher()));
        sender.deliver_next().await.unwrap()
    }

    #[test]
    fn mail_is_attempted_eight_times() {
        let minutes = |attempts| retry_after(attempts).map(Duration::whole_minutes);
        let delays: Vec<_> = (1..=8).map(minutes).collect();
        let expected = [1, 5, 30, 120, 300, 600, 600].map(Some);
        assert_eq!(delays[..7], expected);
        assert_eq!((minutes(0), delays[7], minutes(u32::MAX)), (None, None, None));
    }

    #[tokio::test]
    async fn sent_mail_is_deleted() {
        let mut queue = queue(Some(claimed(1)));
        queue.expect_delete().times(1).returning(|_| Ok(()));
        assert_eq!(deliver(queue, mailer(Ok(()))).await, MailOutcome::Sent);
        let empty = MockMailer::new();
        assert_eq!(deliver(self::queue(None), empty).await, MailOutcome::Nothing);
    }

    #[tokio::test]
    async fn claim_starts_behind_the_account_of_the_last_mail() {
        let mut queue = MockMailQueue::new();
        let mut previous = vec![Some(ACCOUNT), None];
        queue.expect_claim().times(2).returning(move |_, after| {
            assert_eq!(after, previous.pop().unwrap());
            Ok(Some(claimed(1)))
        });
        queue.expect_delete().returning(|_| Ok(()));
        let mut mailer = MockMailer::new();
        mailer.expect_send().returning(|_, _| Ok(()));
        let sender = MailSender::new(Arc::new(queue), Arc::new(mailer), Arc::new(cipher()));
        for _ in 0..2 {
            assert_eq!(sender.deliver_next().await.unwrap(), MailOutcome::Sent);
        }
    }

    #[tokio::test]
    async fn failed_mail_is_deferred_and_finally_abandoned() {
        let cause = MailError::Failed("no connection".into());
        let mut second = queue(Some(claimed(2)));
        second
            .expect_defer()
            .withf(|id, attempts, delay| (*id, *attempts, *delay) == (ID, 2, Duration::minutes(5)))
            .times(1)
            .returning(|_, _, _| Ok(()));
        let deferred = MailOutcome::Deferred {
            id: ID,
            cause: cause.clone(),
            delay: Duration::minutes(5),
        };
        assert_eq!(deliver(second, mailer(Err(cause.clone()))).await, deferred);
        let mut last = queue(Some(claimed(8)));
        last.expect_delete().times(1).returning(|_| Ok(()));
        let given_up = MailOutcome::GivenUp {
            id: ID,
            account_id: ACCOUNT,
            attempts: 8,
            cause: cause.clone(),
        };
        assert_eq!(deliver(last, mailer(Err(cause))).await, given_up);
    }

    #[tokio::test]
    async fn unsendable_mail_is_abandoned_at_once() {
        let mut unsendable = queue(Some(claimed(1)));
        unsendable.expect_delete().times(1).returning(|_| Ok(()));
        let cause = MailError::Unsendable("the address is invalid");
        let outcome = deliver(unsendable, mailer(Err(cause))).await;
        assert!(
            matches!(outcome, MailOutcome::GivenUp { attempts: 1, .. }),
            "{outcome:?}"
        );
    }

    /// While a secret is rotated, another process may have the secret that this one lacks.
    #[tokio::test]
    async fn unreadable_mail_is_deferred_and_finally_abandoned() {
        let foreign = |attempts| ClaimedMail {
            mail: OutgoingMail {
                id: ID,
                content: Sealed(b"sealed with another key".to_vec()),
            },
            ..claimed(attempts)
        };
        let mut first = queue(Some(foreign(1)));
        first.expect_defer().times(1).returning(|_, _, _| Ok(()));
        let outcome = deliver(first, MockMailer::new()).await;
        assert!(matches!(outcome, MailOutcome::Deferred { .. }), "{outcome:?}");
        let mut last = queue(Some(foreign(8)));
        last.expect_delete().times(1).returning(|_| Ok(()));
        let outcome = deliver(last, MockMailer::new()).await;
        assert!(matches!(outcome, MailOutcome::GivenUp { .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn sent_mail_that_cannot_be_deleted_is_an_error() {
        let mut queue = queue(Some(claimed(1)));
        queue
            .expect_delete()
            .returning(|_| Err(StoreError::Corrupt("x".into())));
        let sender = MailSender::new(Arc::new(queue), Arc::new(mailer(Ok(()))), Arc::new(cipher()));
        assert!(sender.deliver_next().await.is_err());
    }
}
