//! Circuit breaker of a run: too many consecutive rejected or throttled messages pause it.

use super::SendResult;

/// This many consecutive rejected parameters have one cause: the mapping does not fit the template.
const MAX_REFUSED_PARAMETERS: usize = 20;

/// After this many consecutive rejections, the run is unlikely to reach any contact.
const MAX_REFUSED_MESSAGES: usize = 1000;

/// This many consecutive throttled messages take about an hour at the lowest send rate: the number may send nothing.
const MAX_THROTTLED_MESSAGES: usize = 5000;

/// Error codes: a parameter's format does not fit the template, or WhatsApp does not accept its text.
const WRONG_PARAMETER: [i64; 2] = [132_012, 132_018];

/// Error codes that concern one recipient. An audience may begin with any number of such contacts.
const RECIPIENT_CODES: [i64; 7] = [131_026, 131_047, 131_049, 131_050, 131_051, 131_052, 132_018];

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
    /// Counts a result. Ignores results without a call, and retries for another reason than the number's rate.
    pub(super) fn add(&mut self, result: &SendResult) {
        match result {
            SendResult::Sent { .. } | SendResult::Unknown => *self = Self::default(),
            SendResult::Failed {
                code: Some(code),
                message,
            } => {
                self.reason.clone_from(message);
                self.throttled = 0;
                self.messages += usize::from(!RECIPIENT_CODES.contains(code));
                self.parameters = if WRONG_PARAMETER.contains(code) {
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

    fn refused(code: i64) -> SendResult {
        SendResult::Failed {
            code: Some(code),
            message: format!("refused with {code}"),
        }
    }

    fn sent() -> SendResult {
        SendResult::Sent {
            message_id: None,
            wa_id: None,
        }
    }

    fn reason_after(results: impl IntoIterator<Item = SendResult>) -> Option<String> {
        let mut refusals = Refusals::default();
        for result in results {
            refusals.add(&result);
        }
        refusals.pause_reason()
    }

    #[test]
    fn refusals_pause_after_twenty_refused_parameters() {
        for code in WRONG_PARAMETER {
            let twenty = || vec![refused(code); 20];
            assert_eq!(reason_after(vec![refused(code); 19]), None);
            let reason = format!("the parameters of the last 20 messages were refused: refused with {code}");
            assert_eq!(reason_after(twenty()), Some(reason));
            for between in [sent(), SendResult::Unknown, refused(131_026)] {
                let mut results = twenty();
                results.insert(10, between);
                assert_eq!(reason_after(results), None);
            }
            let mut results = twenty();
            results.insert(10, SendResult::Released);
            assert!(
                reason_after(results).is_some(),
                "a retried send does not reset the count"
            );
        }
    }

    #[test]
    fn refusals_pause_a_number_that_may_send_nothing() {
        let throttled = SendResult::Throttled {
            delay: Duration::SECOND,
        };
        assert_eq!(reason_after(vec![throttled.clone(); 4999]), None);
        let reason = reason_after(vec![throttled.clone(); 5000]).unwrap();
        assert!(reason.contains("throttled the last 5000"), "{reason}");
        for between in [sent(), SendResult::Unknown, refused(131_026)] {
            let mut results = vec![throttled.clone(); 6000];
            results.insert(3000, between);
            assert_eq!(reason_after(results), None);
        }
    }

    #[test]
    fn refusals_pause_after_a_thousand_not_about_recipients() {
        assert_eq!(reason_after(vec![refused(100); 999]), None);
        assert_eq!(
            reason_after(vec![refused(100); 1000]),
            Some("1000 messages in a row were refused: refused with 100".into())
        );
        for code in RECIPIENT_CODES
            .into_iter()
            .filter(|code| !WRONG_PARAMETER.contains(code))
        {
            assert_eq!(reason_after(vec![refused(code); 5000]), None, "{code}");
            // They do not reset the count either, since WhatsApp accepted nothing.
            let mut results = vec![refused(100); 999];
            results.extend([refused(code), refused(100)]);
            assert!(reason_after(results).is_some(), "{code}");
        }
        let mut results = vec![refused(100); 999];
        results.extend([sent(), refused(100)]);
        assert_eq!(reason_after(results), None);
    }
}
