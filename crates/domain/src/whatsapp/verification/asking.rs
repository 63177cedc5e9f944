//! Asks WhatsApp the checks of one profile, in their order and within a time limit.

use std::pin::pin;

use futures_util::future::{Either, select};
use secrecy::SecretString;
use time::{Duration, OffsetDateTime};

use super::{
    BusinessNumbers, Check, CheckName, CheckReport, CheckState, GraphError, HealthReport, NumberFacts,
    VerificationGateway, business_account_check, number_check, pace_check, quality_check, registration_check,
    should_register, subscription_check, token_check,
};
use crate::messaging::WhatsappCredentials;
use crate::shared::{Clock, Timer};

/// The most pages of a business account's numbers that are read.
const MAX_PAGES: usize = 20;

/// What WhatsApp answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answers {
    /// Every check in its order.
    pub(super) checks: Vec<Check>,
    /// The values of the number. None unless the checks prove that the token's owner has it.
    pub(super) number: Option<NumberFacts>,
}

impl Answers {
    fn without_number(checks: Vec<Check>) -> Self {
        Self { checks, number: None }
    }

    /// The answers of a profile whose stored token cannot be decrypted.
    pub(super) fn unreadable_token() -> Self {
        let mut report = CheckReport::default();
        report.add(Check::with_remedy(
            CheckName::Token,
            CheckState::Unknown,
            "The stored access token cannot be read",
            "Enter the access token again.",
        ));
        Self::without_number(report.finish())
    }

    /// Whether WhatsApp could not be asked some check.
    pub(super) fn has_unknown(&self) -> bool {
        self.checks.iter().any(|check| check.state == CheckState::Unknown)
    }
}

/// One conversation with WhatsApp about a profile.
pub(super) struct Asking<'a> {
    gateway: &'a dyn VerificationGateway,
    timer: &'a dyn Timer,
    clock: &'a dyn Clock,
    credentials: WhatsappCredentials,
    limit: Duration,
    deadline: OffsetDateTime,
}

impl<'a> Asking<'a> {
    /// Calls that are not answered within `limit` from now are unavailable.
    pub(super) fn new(
        gateway: &'a dyn VerificationGateway,
        timer: &'a dyn Timer,
        clock: &'a dyn Clock,
        credentials: WhatsappCredentials,
        limit: Duration,
    ) -> Self {
        Self {
            gateway,
            timer,
            clock,
            credentials,
            limit,
            deadline: clock.now() + limit,
        }
    }

    /// Waits for a call until the deadline.
    async fn within<T>(&self, call: impl Future<Output = Result<T, GraphError>>) -> Result<T, GraphError> {
        let late = || GraphError::Unavailable("it did not answer in time".into());
        // The clock may be set back, which must not lengthen the wait.
        let left = (self.deadline - self.clock.now()).min(self.limit);
        if left <= Duration::ZERO {
            return Err(late());
        }
        match select(pin!(call), self.timer.sleep(left)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(late()),
        }
    }

    /// Runs the checks. `pin` registers the number if it is not registered.
    pub(super) async fn checks(&self, pin: Option<&SecretString>, messages_per_second: Option<i32>) -> Answers {
        let answer = self.within(self.gateway.number(&self.credentials)).await;
        if answer == Err(GraphError::NotConfigured) {
            return Answers::without_number(CheckReport::not_configured());
        }
        let mut report = CheckReport::default();
        report.add(token_check(&answer));
        if !report.is_over() {
            report.add(number_check(&answer, &self.credentials.phone_number_id));
        }
        let read = match answer {
            Ok(read) if !report.is_over() => read,
            Ok(_) | Err(_) => return Answers::without_number(report.finish()),
        };
        report.add(business_account_check(&self.find_in_business().await));
        if report.is_over() {
            return Answers::without_number(report.finish());
        }
        report.add(subscription_check(
            &self.within(self.gateway.subscribe(&self.credentials)).await,
        ));
        let (facts, registration) = self.registered(read.facts, pin).await;
        report.add(registration_check(&facts, registration.as_ref()));
        report.add(quality_check(&facts));
        report.add(pace_check(messages_per_second, &facts));
        Answers {
            checks: report.finish(),
            number: Some(self.with_portfolio(facts).await),
        }
    }

    /// Asks for the number's health.
    pub(super) async fn health(&self) -> Result<HealthReport, GraphError> {
        self.within(self.gateway.health(&self.credentials)).await
    }

    /// Searches the lists of the business account for the number.
    async fn find_in_business(&self) -> BusinessNumbers {
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.gateway.business_numbers(&self.credentials, after.as_deref());
            match self.within(page).await {
                Err(error) => return BusinessNumbers::Refused(error),
                Ok(page) if page.ids.contains(&self.credentials.phone_number_id) => return BusinessNumbers::Listed,
                Ok(page) if page.next.is_none() => return BusinessNumbers::NotListed,
                Ok(page) => after = page.next,
            }
        }
        BusinessNumbers::TooMany
    }

    /// Registers the number if it must be, and reads it again. Returns the answer of the registration, if there is one.
    async fn registered(
        &self,
        facts: NumberFacts,
        pin: Option<&SecretString>,
    ) -> (NumberFacts, Option<Result<(), GraphError>>) {
        let Some(pin) = pin.filter(|_| should_register(&facts, true)) else {
            return (facts, None);
        };
        let answer = self.within(self.gateway.register(&self.credentials, pin)).await;
        let facts = match answer {
            Ok(()) => match self.within(self.gateway.number(&self.credentials)).await {
                Ok(number) => facts.updated(number.facts),
                Err(_) => facts,
            },
            Err(_) => facts,
        };
        (facts, Some(answer))
    }

    /// Only the health of a number names its portfolio. Without an answer the portfolio stays as it is known.
    async fn with_portfolio(&self, facts: NumberFacts) -> NumberFacts {
        let health = self.health().await.ok();
        let portfolio_id = health.and_then(|report| report.portfolio_id().map(str::to_owned));
        NumberFacts { portfolio_id, ..facts }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockVerificationGateway;
    use super::*;
    use crate::messaging::ProfileKey;
    use crate::shared::MockClock;

    /// A timer whose time has come.
    struct Over;

    #[async_trait]
    impl Timer for Over {
        async fn sleep(&self, _: Duration) {}
    }

    #[tokio::test]
    async fn call_that_hangs_ends_at_the_deadline() {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(datetime!(2026-11-26 12:00 UTC));
        let gateway = MockVerificationGateway::new();
        let credentials = WhatsappCredentials {
            profile: ProfileKey {
                account_id: Uuid::from_u128(2).into(),
                profile_id: Uuid::from_u128(4).into(),
            },
            phone_number_id: "1065".into(),
            waba_id: "1022".into(),
            token: "EAAG".into(),
        };
        let asking = Asking::new(&gateway, &Over, &clock, credentials, Duration::seconds(8));
        let hanging = asking.within(std::future::pending::<Result<(), GraphError>>()).await;
        assert!(matches!(hanging, Err(GraphError::Unavailable(_))));
        assert_eq!(asking.within(std::future::ready(Ok(1))).await, Ok(1));
    }
}
