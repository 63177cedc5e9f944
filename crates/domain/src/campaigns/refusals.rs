//! Consecutive refusals of a run, and messages that its number may not send yet: too many of them pause it.

use super::SendResult;

/// So many refused parameters in a row are no longer about single contacts: the mapping does not fit the template.
const REFUSED_PARAMETERS: usize = 20;

/// A run whose last messages were all refused, so many of them, is not going to reach anybody as it is.
const REFUSED_MESSAGES: usize = 1000;

/// So many messages in a row that the number may not send, at a rate that goes down to one a second, take about an hour:
/// it may send nothing.
const THROTTLED_MESSAGES: usize = 5000;

/// A parameter's format does not fit the template, or its text is one that WhatsApp does not take.
const WRONG_PARAMETER: [i64; 2] = [132_012, 132_018];

/// Refusals that concern one recipient: a list may begin with any number of them.
const OF_ONE_RECIPIENT: [i64; 7] = [131_026, 131_047, 131_049, 131_050, 131_051, 131_052, 132_018];

/// Counts refusals since the last message that WhatsApp accepted, or may have.
#[derive(Default)]
pub(super) struct Refusals {
    parameters: usize,
    messages: usize,
    throttled: usize,
    /// What WhatsApp said last.
    reason: String,
}

impl Refusals {
    /// Takes in what came of a call. Results of no call, and of calls that are tried again for other reasons than the
    /// number's rate, change nothing.
    pub(super) fn add(&mut self, result: &SendResult) {
        match result {
            SendResult::Sent { .. } | SendResult::Unknown => *self = Self::default(),
            SendResult::Failed {
                code: Some(code),
                message,
            } => {
                self.reason.clone_from(message);
                self.throttled = 0;
                self.messages += usize::from(!OF_ONE_RECIPIENT.contains(code));
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

    /// Why the run has to pause, if it has to.
    pub(super) fn pause_reason(&self) -> Option<String> {
        let reason = &self.reason;
        if self.parameters >= REFUSED_PARAMETERS {
            let count = self.parameters;
            return Some(format!(
                "the parameters of the last {count} messages were refused: {reason}"
            ));
        }
        if self.throttled >= THROTTLED_MESSAGES {
            return Some(format!(
                "WhatsApp throttled the last {} messages of the number",
                self.throttled
            ));
        }
        let count = self.messages;
        (count >= REFUSED_MESSAGES).then(|| format!("{count} messages in a row were refused: {reason}"))
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

    fn after(results: impl IntoIterator<Item = SendResult>) -> Option<String> {
        let mut refusals = Refusals::default();
        for result in results {
            refusals.add(&result);
        }
        refusals.pause_reason()
    }

    #[test]
    fn parameters_refused_twenty_times_in_a_row_pause() {
        for code in WRONG_PARAMETER {
            let twenty = || vec![refused(code); 20];
            assert_eq!(after(vec![refused(code); 19]), None);
            let reason = format!("the parameters of the last 20 messages were refused: refused with {code}");
            assert_eq!(after(twenty()), Some(reason));
            for between in [sent(), SendResult::Unknown, refused(131_026)] {
                let mut results = twenty();
                results.insert(10, between);
                assert_eq!(after(results), None);
            }
            let mut results = twenty();
            results.insert(10, SendResult::Released);
            assert!(after(results).is_some(), "what is tried again ends no row");
        }
    }

    #[test]
    fn a_number_that_may_send_nothing_pauses() {
        let throttled = SendResult::Throttled {
            delay: Duration::SECOND,
        };
        assert_eq!(after(vec![throttled.clone(); 4999]), None);
        let reason = after(vec![throttled.clone(); 5000]).unwrap();
        assert!(reason.contains("throttled the last 5000"), "{reason}");
        for between in [sent(), SendResult::Unknown, refused(131_026)] {
            let mut results = vec![throttled.clone(); 6000];
            results.insert(3000, between);
            assert_eq!(after(results), None);
        }
    }

    #[test]
    fn a_thousand_refusals_pause_unless_they_concern_recipients() {
        assert_eq!(after(vec![refused(100); 999]), None);
        assert_eq!(
            after(vec![refused(100); 1000]),
            Some("1000 messages in a row were refused: refused with 100".into())
        );
        for code in OF_ONE_RECIPIENT
            .into_iter()
            .filter(|code| !WRONG_PARAMETER.contains(code))
        {
            assert_eq!(after(vec![refused(code); 5000]), None, "{code}");
            // They end no row either: nothing was accepted.
            let mut results = vec![refused(100); 999];
            results.extend([refused(code), refused(100)]);
            assert!(after(results).is_some(), "{code}");
        }
        let mut results = vec![refused(100); 999];
        results.extend([sent(), refused(100)]);
        assert_eq!(after(results), None);
    }
}
