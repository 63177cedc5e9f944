//! The use cases of automations.

use std::sync::Arc;

use super::*;
use crate::ingestion::{IngestionResult, validate_batch};
use crate::shared::{AutomationId, Clock, CursorPage, CursorQuery, FieldErrors, Ids, Tenant, text};

const NAME_CHARS: usize = 200;

/// Lists, creates and changes automations, and records their executions.
pub struct Automations {
    store: Arc<dyn AutomationStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Automations {
    pub fn new(store: Arc<dyn AutomationStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// The account's automations, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Automation>, AutomationError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// Creates an automation. The plan's limit is checked only when an account changes to a smaller plan.
    pub async fn create(&self, tenant: &Tenant, input: AutomationInput) -> Result<Automation, AutomationError> {
        let mut errors = FieldErrors::default();
        for (field, value) in [("name", &input.name), ("status", &input.status)] {
            if value.is_none() {
                errors.add(field, "is required");
            }
        }
        errors.into_result()?;
        let change = checked(input)?;
        let now = self.clock.now();
        let automation = Automation {
            id: self.ids.next().into(),
            name: change.name.unwrap_or_default(),
            status: change.status.unwrap_or(AutomationStatus::Draft),
            created_at: now,
            updated_at: now,
        };
        self.store.insert(tenant.account_id, &automation).await?;
        Ok(automation)
    }

    /// Changes the given fields.
    pub async fn update(
        &self,
        tenant: &Tenant,
        id: AutomationId,
        input: AutomationInput,
    ) -> Result<Automation, AutomationError> {
        let change = checked(input)?;
        let now = self.clock.now();
        let changed = self.store.update(tenant.account_id, id, &change, now).await?;
        changed.ok_or(AutomationError::NotFound)
    }

    /// Records 1 to 1000 executions of one automation.
    pub async fn record(
        &self,
        tenant: &Tenant,
        id: AutomationId,
        inputs: Vec<ExecutionInput>,
    ) -> Result<IngestionResult, AutomationError> {
        let executions = validate_batch("executions", inputs, |input, item| {
            let status = item.parse_enum("status", input.status.as_deref());
            let started_at = item.required("started_at", input.started_at);
            let finished_at = item.required("finished_at", input.finished_at);
            if started_at > finished_at && finished_at.is_some() {
                item.reject("finished_at", "must not be before started_at");
            }
            Some(Execution {
                id: input.id.unwrap_or_else(|| self.ids.next().into()),
                status: status?,
                started_at: started_at?,
                finished_at: finished_at?,
            })
        })?;
        let now = self.clock.now();
        let recorded = self.store.record(tenant.account_id, id, &executions, now).await?;
        recorded.ok_or(AutomationError::NotFound)
    }
}

fn checked(input: AutomationInput) -> Result<AutomationChange, FieldErrors> {
    let mut errors = FieldErrors::default();
    let name = input.name.map(|name| text::sanitize(&name));
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || name.chars().count() > NAME_CHARS)
    {
        errors.add("name", format!("must have 1 to {NAME_CHARS} characters"));
    }
    let status = match input.status.map(|status| status.parse()).transpose() {
        Ok(status) => status,
        Err(message) => {
            errors.add("status", message);
            None
        }
    };
    errors.into_result()?;
    Ok(AutomationChange { name, status })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockAutomationStore;
    use super::*;
    use crate::shared::{AccountId, MockClock, MockIds, Role, UserId};

    fn automations(store: MockAutomationStore) -> Automations {
        let (mut clock, mut ids) = (MockClock::new(), MockIds::new());
        clock.expect_now().returning(|| datetime!(2026-03-01 12:00 UTC));
        ids.expect_next().returning(|| Uuid::from_u128(1));
        Automations::new(Arc::new(store), Arc::new(clock), Arc::new(ids))
    }

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    fn fields<T: std::fmt::Debug>(refused: Result<T, AutomationError>) -> Vec<String> {
        match refused {
            Err(AutomationError::Invalid(errors)) => errors.0.into_keys().collect(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn automation_create_reports_every_invalid_field() {
        let mut store = MockAutomationStore::new();
        store.expect_insert().times(1).returning(|_, _| Ok(()));
        let automations = automations(store);
        let input = |name: Option<&str>, status: Option<&str>| AutomationInput {
            name: name.map(Into::into),
            status: status.map(Into::into),
        };
        let welcome = input(Some("Boas-vindas"), Some("active"));
        let made = automations.create(&tenant(), welcome).await.unwrap();
        assert_eq!(made.status, AutomationStatus::Active);
        let create = async |name, status| fields(automations.create(&tenant(), input(name, status)).await);
        assert_eq!(create(None, None).await, ["name", "status"]);
        assert_eq!(create(Some(" "), Some("running")).await, ["name", "status"]);
    }

    #[tokio::test]
    async fn execution_must_end_after_its_start() {
        let automations = automations(MockAutomationStore::new());
        let at = |hour| Some(datetime!(2026-03-01 0:00 UTC) + time::Duration::hours(hour));
        let execution = |status: &str, from, to| ExecutionInput {
            id: None,
            status: Some(status.into()),
            started_at: from,
            finished_at: to,
        };
        let inputs = vec![
            execution("completed", at(1), at(1)),
            execution("failed", at(2), at(1)),
            execution("running", None, None),
        ];
        let refused = automations.record(&tenant(), AutomationId(Uuid::nil()), inputs).await;
        let expected = [
            "executions[1].finished_at",
            "executions[2].finished_at",
            "executions[2].started_at",
            "executions[2].status",
        ];
        assert_eq!(fields(refused), expected);
        let none = automations.record(&tenant(), AutomationId(Uuid::nil()), vec![]).await;
        assert_eq!(fields(none), ["executions"]);
    }
}
