//! Circuit breaker of a run: too many consecutive rejected or throttled messages pause it.

use super::SendResult;
use crate::messaging::ErrorClass;

/// This many consecutive rejected parameters have one cause: the mapping does not fit the template.
const MAX_REFUSED_PARAMETERS: usize = 20;

/// After this many consecutive rejections, the run is unlikely to reach any contact.
const MAX_REFUSED_MESSAGES: usize = 1000;

/// This many consecutive throttled messages take about an hour at the lowest send rate: the number may send nothing.
const MAX_THROTTLED_MESSAGES: usize = 5000;

const WRONG_PARAMETER: [ErrorClass; 2] = [ErrorClass::ParameterFormat, ErrorClass::ParameterText];

/// Errors that concern one recipient. An audience may begin with any number of such contacts.
const RECIPIENT_ERRORS: [ErrorClass; 6] = [
    ErrorClass::RecipientUnreachable,
    ErrorClass::WindowClosed,
    ErrorClass::RecipientLimited,
    ErrorClass::OptedOut,
    ErrorClass::UnsupportedMessage,
    ErrorClass::ParameterText,
];

/// Counts rejections since the last message that WhatsApp accepted or may have accepted.
#[derive(Default)]
pub(super) struct Refusals {
    parameters: usize,
    messages: usize,
    throttled: usize,
    /// WhatsApp's last error message.
    reason: String,
}

impl Refusals {
    /// Counts a result, with the class of its error if WhatsApp rejected the message. Ignores results without a call,
    /// and retries for another reason than the number's rate.
    pub(super) fn add(&mut self, result: &SendResult, error: Option<ErrorClass>) {
        match result {
            SendResult::Sent { .. } | SendResult::Unknown => *self = Self::default(),
            SendResult::Failed { code: Some(_), message } => {
                let is_one_of = |classes: &[ErrorClass]| error.is_some_and(|class| classes.contains(&class));
                self.reason.clone_from(message);
                self.throttled = 0;
                self.messages += usize::from(!is_one_of(&RECIPIENT_ERRORS));
                self.parameters = if is_one_of(&WRONG_PARAMETER) {
                    self.parameters + 1
                } else {
                    0
                };
            }
            SendResult::Throttled { .. } => self.throttled += 1,
            SendResult::Failed { code: None, .. } | SendResult::Deferred { .. } | SendResult::Released => {}
        }
    }

    /// The reason to pause the run, if a limit is reached.
    pub(super) fn pause_reason(&self) -> Option<String> {
        let reason = &self.reason;
        if self.parameters >= MAX_REFUSED_PARAMETERS {
            let count = self.parameters;
            return Some(format!(
                "the parameters of the last {count} messages were refused: {reason}"
            ));
        }
        if self.throttled >= MAX_THROTTLED_MESSAGES {
            return Some(format!(
                "WhatsApp throttled the last {} messages of the number",
                self.throttled
            ));
        }
        let count = self.messages;
        (count >= MAX_REFUSED_MESSAGES).then(|| format!("{count} messages in a row were refused: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    type Counted = (SendResult, Option<ErrorClass>);

    const UNREACHABLE: ErrorClass = ErrorClass::RecipientUnreachable;

    fn refused(class: ErrorClass) -> Counted {
        let result = SendResult::Failed {
            code: Some(1),
            message: format!("refused with {class:?}"),
        };
        (result, Some(class))
    }

    fn unknown() -> Counted {
        (SendResult::Unknown, None)
    }

    fn sent() -> Counted {
        let result = SendResult::Sent {
            message_id: None,
            wa_id: None,
        };
        (result, None)
    }

    fn reason_after(results: impl IntoIterator<Item = Counted>) -> Option<String> {
        let mut refusals = Refusals::default();
        for (result, error) in results {
            refusals.add(&result, error);
        }
        refusals.pause_reason()
    }

    #[test]
    fn refusals_pause_after_twenty_refused_parameters() {
        for class in WRONG_PARAMETER {
            let twenty = || vec![refused(class); 20];
            assert_eq!(reason_after(vec![refused(class); 19]), None);
            let reason = format!("the parameters of the last 20 messages were refused: refused with {class:?}");
            assert_eq!(reason_after(twenty()), Some(reason));
            for between in [sent(), unknown(), refused(UNREACHABLE)] {
                let mut results = twenty();
                results.insert(10, between);
                assert_eq!(reason_after(results), None);
            }
            let mut results = twenty();
            results.insert(10, (SendResult::Released, None));
            assert!(
                reason_after(results).is_some(),
                "a retried send does not reset the count"
            );
        }
    }

    #[test]
    fn refusals_pause_a_number_that_may_send_nothing() {
        let delay = Duration::SECOND;
        let throttled = (SendResult::Throttled { delay }, None);
        assert_eq!(reason_after(vec![throttled.clone(); 4999]), None);
        let reason = reason_after(vec![throttled.clone(); 5000]).unwrap();
        assert!(reason.contains("throttled the last 5000"), "{reason}");
        for between in [sent(), unknown(), refused(UNREACHABLE)] {
            let mut results = vec![throttled.clone(); 6000];
            results.insert(3000, between);
            assert_eq!(reason_after(results), None);
        }
    }

    #[test]
    fn refusals_pause_after_a_thousand_not_about_recipients() {
        assert_eq!(reason_after(vec![refused(ErrorClass::NotFound); 999]), None);
        assert_eq!(
            reason_after(vec![refused(ErrorClass::NotFound); 1000]),
            Some("1000 messages in a row were refused: refused with NotFound".into())
        );
        for class in RECIPIENT_ERRORS
            .into_iter()
            .filter(|class| !WRONG_PARAMETER.contains(class))
        {
            assert_eq!(reason_after(vec![refused(class); 5000]), None, "{class:?}");
            // They do not reset the count either, since WhatsApp accepted nothing.
            let mut results = vec![refused(ErrorClass::NotFound); 999];
            results.extend([refused(class), refused(ErrorClass::NotFound)]);
            assert!(reason_after(results).is_some(), "{class:?}");
        }
        let mut results = vec![refused(ErrorClass::NotFound); 999];
        results.extend([sent(), refused(ErrorClass::NotFound)]);
        assert_eq!(reason_after(results), None);
    }
}
