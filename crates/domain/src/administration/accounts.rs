//! Use cases of platform administrators over all accounts: list, create, update, suspend, change the plan, and reports.

use std::sync::Arc;

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::{
    AccountChange, AccountDetail, AccountFilter, AccountRow, AccountUpdate, Admin, Administered, AdministrationError,
    AdministrationReportStore, AdministrationStats, AdministrationStore, ChurnDay, Days, PlatformEntity,
    PlatformRevenueDay, PlatformRevenueOverview, SubscriptionTotals,
};
use crate::accounts::{Account, AccountStatus};
use crate::billing::{self, BillingAccountStore, Change, ChangeOutcome, FREE_PLAN, SubscriptionStatus};
use crate::shared::{
    AccountId, AuditAction, Clock, Event, FieldErrors, Ids, Page, PageQuery, StoreError, UserId, retry_on_conflict,
    text,
};
use crate::team::{FirstOwner, InviteInsert, Invites, NewInvite};

/// Maximum length of an account name, in characters.
const NAME_CHARS: usize = 200;

/// Maximum length of a logo URL, in characters.
const URL_CHARS: usize = 2048;

/// The period for which the list counts messages.
const MESSAGES_SINCE: Duration = Duration::days(30);

/// A new account, not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountInput {
    pub name: Option<String>,
    pub slug: Option<String>,
    pub plan: Option<String>,
    /// Address to which the invite of the first owner is sent.
    pub owner_email: Option<String>,
}

/// Changes of an account, not yet validated. `None` keeps the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPatch {
    pub name: Option<String>,
    pub slug: Option<String>,
    pub logo_url: Option<Option<String>>,
    pub plan: Option<String>,
    pub status: Option<String>,
    /// Address to which the invite of the first owner is sent. Allowed only while the account has no owner.
    pub owner_email: Option<String>,
}

/// An action on an account, not yet validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionInput {
    pub action: Option<String>,
    pub plan: Option<String>,
}

/// A validated action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Suspend,
    Reactivate,
    ChangePlan(&'static str),
}

impl ActionInput {
    fn validated(&self) -> Result<Action, FieldErrors> {
        match self.action.as_deref() {
            Some("suspend") => Ok(Action::Suspend),
            Some("reactivate") => Ok(Action::Reactivate),
            Some("change_plan") => match self.plan.as_deref() {
                None => Err(FieldErrors::one("plan", "is required")),
                Some(id) => plan_id(id).map(Action::ChangePlan),
            },
            None => Err(FieldErrors::one("action", "is required")),
            Some(_) => Err(FieldErrors::one(
                "action",
                "must be one of suspend, reactivate, change_plan",
            )),
        }
    }
}

/// Use cases of platform administrators over all accounts.
pub struct Administration {
    store: Arc<dyn AdministrationStore>,
    reports: Arc<dyn AdministrationReportStore>,
    billing_accounts: Arc<dyn BillingAccountStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    invites: Invites,
}

impl Administration {
    pub fn new(
        store: Arc<dyn AdministrationStore>,
        reports: Arc<dyn AdministrationReportStore>,
        billing_accounts: Arc<dyn BillingAccountStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        invites: Invites,
    ) -> Self {
        Self {
            store,
            reports,
            billing_accounts,
            clock,
            ids,
            invites,
        }
    }

    /// Returns one page of the accounts, newest first.
    pub async fn list(&self, filter: &AccountFilter, page: PageQuery) -> Result<Page<AccountRow>, AdministrationError> {
        let since = self.clock.now() - MESSAGES_SINCE;
        Ok(self.reports.list(filter, page, since).await?)
    }

    pub async fn get(&self, account: AccountId) -> Result<AccountDetail, AdministrationError> {
        let found = self.reports.detail(account).await?;
        found.ok_or(AdministrationError::NotFound)
    }

    /// Creates an account without members, and an invite for its first owner if an address is given.
    pub async fn create(&self, admin: &Admin, input: &AccountInput) -> Result<Administered, AdministrationError> {
        let mut errors = FieldErrors::default();
        let name = errors_into(&mut errors, name(input.name.as_deref().unwrap_or_default()));
        let slug = errors_into(&mut errors, input.slug.as_deref().map(slug).transpose());
        let plan = errors_into(&mut errors, plan_id(input.plan.as_deref().unwrap_or(FREE_PLAN)));
        let (name, slug) = (name.unwrap_or_default(), slug.flatten());
        let is_given = slug.is_some();
        let account = Account {
            id: self.ids.next().into(),
            slug: slug.unwrap_or_else(|| text::slug(&name)),
            name,
            logo_url: None,
            plan: plan.unwrap_or(FREE_PLAN).to_owned(),
            status: AccountStatus::Active,
            created_at: self.clock.now(),
        };
        let invite = self.owner_invite(admin, (account.id, &account.name), input.owner_email.as_deref());
        let (insert, owner_invite) = errors_into(&mut errors, invite).unwrap_or_default();
        errors.into_result()?;
        let entry = admin.platform_entry(AuditAction::Create, PlatformEntity::Account, account.id);
        let entry = entry.with_changes(json!({ "name": account.name, "plan": account.plan,
                                               "owner_invited": insert.is_some() }));
        let created = self.store.create(&account, is_given, insert, entry).await;
        let (account, mailed) = duplicate_to_field_error(created)?;
        Ok(administered(account, owner_invite, mailed))
    }

    /// Updates an account, and invites its first owner if an address is given.
    pub async fn update(
        &self,
        admin: &Admin,
        id: AccountId,
        patch: &AccountPatch,
    ) -> Result<Administered, AdministrationError> {
        let change = account_change(patch)?;
        let (insert, owner_invite) = match non_empty(patch.owner_email.as_deref()) {
            None => (None, None),
            email @ Some(_) => {
                let stored = self.store.account(id).await?.ok_or(AdministrationError::NotFound)?;
                let name = change.name.as_deref().unwrap_or(&stored.name);
                self.owner_invite(admin, (id, name), email)?
            }
        };
        let mut entry = admin.platform_entry(AuditAction::Update, PlatformEntity::Account, id);
        if insert.is_some() {
            entry = entry.with_changes(json!({ "owner_invited": true }));
        }
        let refused = |message: &str| Err(FieldErrors::one("owner_email", message).into());
        match duplicate_to_field_error(self.store.update(id, &change, insert, entry).await)? {
            AccountUpdate::Done(account, mailed) => Ok(administered(account, owner_invite, mailed)),
            AccountUpdate::Missing => Err(AdministrationError::NotFound),
            AccountUpdate::Owned => refused("must be absent: the account has an owner, who can invite other owners"),
            AccountUpdate::Member => refused("is already a member of this account; remove the member first"),
        }
    }

    /// Builds the invite of an account's first owner, if an address is given.
    fn owner_invite(
        &self,
        admin: &Admin,
        (account_id, account): (AccountId, &str),
        email: Option<&str>,
    ) -> Result<(Option<InviteInsert>, Option<NewInvite>), FieldErrors> {
        let Some(email) = non_empty(email) else {
            return Ok((None, None));
        };
        let first_owner = FirstOwner {
            account_id,
            account,
            invited_by: admin.user_id,
            inviter: &admin.email,
            email,
            now: self.clock.now(),
        };
        let (insert, invite) = self.invites.first_owner(&first_owner)?;
        Ok((Some(insert), Some(invite)))
    }

    /// Suspends or reactivates an account, or grants it a plan. Returns the message of the response.
    pub async fn act(
        &self,
        admin: &Admin,
        account: AccountId,
        input: &ActionInput,
    ) -> Result<&'static str, AdministrationError> {
        match input.validated()? {
            Action::Suspend => {
                let status = AccountStatus::Suspended;
                self.set_status(admin, account, status, "suspend").await?;
                Ok("The account is suspended")
            }
            Action::Reactivate => {
                let status = AccountStatus::Active;
                self.set_status(admin, account, status, "reactivate").await?;
                Ok("The account is active")
            }
            Action::ChangePlan(plan) => {
                self.change_plan(admin, account, plan).await?;
                Ok("The account's plan is changed")
            }
        }
    }

    async fn set_status(
        &self,
        admin: &Admin,
        account: AccountId,
        status: AccountStatus,
        action: &str,
    ) -> Result<(), AdministrationError> {
        let changes = json!({ "action": action });
        let entry = admin.platform_entry(AuditAction::Update, PlatformEntity::AccountAction, account);
        let entry = entry.with_changes(changes.clone());
        let event = action_event(admin, account, changes);
        self.store
            .set_status(account, status, &[event], entry)
            .await?
            .or_missing(AdministrationError::NotFound)
    }

    /// Ends all sessions and the support mode of a user, and returns the time.
    pub async fn end_sessions(&self, admin: &Admin, user: UserId) -> Result<OffsetDateTime, AdministrationError> {
        let entry = admin.entry_without_account(AuditAction::Update, PlatformEntity::UserSessions, user.0);
        let ended = self.store.end_sessions(user, self.clock.now(), entry).await?;
        ended.ok_or(AdministrationError::NotFound)
    }

    /// Grants a plan without a gateway call: the price of a subscription stays. A paid subscription gets the plan
    /// itself, so that the plan ends with it. Without a paid subscription the grant is stored with the account.
    /// `AdministrationStore` writes both, because the entry of the platform audit log commits with them.
    async fn change_plan(&self, admin: &Admin, account: AccountId, plan: &str) -> Result<(), AdministrationError> {
        retry_on_conflict(async || {
            let before = self.store.account(account).await?;
            let before = before.ok_or(AdministrationError::NotFound)?;
            let changes = json!({ "action": "change_plan", "plan": { "from": before.plan, "to": plan } });
            let entry = admin.platform_entry(AuditAction::Update, PlatformEntity::AccountAction, account);
            let entry = entry.with_changes(changes.clone());
            let events = vec![action_event(admin, account, changes)];
            let live = self.billing_accounts.overview(account).await?.subscription;
            let paying =
                live.filter(|live| matches!(live.status, SubscriptionStatus::Active | SubscriptionStatus::PastDue));
            let Some(mut subscription) = paying else {
                let granted = self.store.set_plan(account, plan, &events, entry).await?;
                return granted.or_missing(AdministrationError::NotFound).map(Some);
            };
            subscription.plan = plan.to_owned();
            subscription.updated_at = self.clock.now();
            let change = Change {
                account_plan: Some(plan.to_owned()),
                withdraws_grant: true,
                events,
                ..Change::of(subscription)
            };
            let written = self.store.change_subscription(&change, entry).await?;
            Ok((written == ChangeOutcome::Done).then_some(()))
        })
        .await
    }

    /// Returns the key numbers over all accounts.
    pub async fn stats(&self) -> Result<AdministrationStats, AdministrationError> {
        let totals = self.reports.totals().await?;
        Ok(AdministrationStats::new(totals, self.subscription_totals().await?))
    }

    /// Returns recurring revenue and churn over all accounts.
    pub async fn revenue(&self) -> Result<PlatformRevenueOverview, AdministrationError> {
        Ok(self.subscription_totals().await?.into())
    }

    async fn subscription_totals(&self) -> Result<SubscriptionTotals, StoreError> {
        let now = self.clock.now();
        let since = now - Duration::days(SubscriptionTotals::CHURN_DAYS);
        self.reports.subscriptions(since, now).await
    }

    /// Returns the revenue of each of the last `days` days.
    pub async fn daily_revenue(&self, days: i64) -> Result<Vec<PlatformRevenueDay>, AdministrationError> {
        let days = Days::until(self.clock.now(), days);
        Ok(PlatformRevenueDay::each(days, &self.reports.revenue(days).await?))
    }

    /// Returns the churn of each of the last `days` days.
    pub async fn churn(&self, days: i64) -> Result<Vec<ChurnDay>, AdministrationError> {
        let days = Days::until(self.clock.now(), days);
        let churn = self.reports.churn(days).await?;
        Ok(churn.into_iter().map(ChurnDay::from).collect())
    }
}

fn administered(account: Account, invite: Option<NewInvite>, mailed: bool) -> Administered {
    Administered {
        account,
        owner_invite: invite.map(|invite| NewInvite { mailed, ..invite }),
    }
}

fn action_event(admin: &Admin, account: AccountId, changes: Value) -> Event {
    let audit = admin.audit(AuditAction::Update, "admin_account_action", account);
    Event::Audit(audit.with_changes(changes))
}

fn account_change(patch: &AccountPatch) -> Result<AccountChange, FieldErrors> {
    let mut errors = FieldErrors::default();
    let logo_url = match &patch.logo_url {
        None => None,
        Some(None) => Some(None),
        Some(Some(value)) => errors_into(&mut errors, url(value)).map(Some),
    };
    let change = AccountChange {
        name: errors_into(&mut errors, patch.name.as_deref().map(name).transpose()).flatten(),
        slug: errors_into(&mut errors, patch.slug.as_deref().map(slug).transpose()).flatten(),
        logo_url,
        plan: errors_into(&mut errors, patch.plan.as_deref().map(plan_id).transpose())
            .flatten()
            .map(str::to_owned),
        status: errors_into(&mut errors, patch.status.as_deref().map(status).transpose()).flatten(),
    };
    errors.into_result()?;
    Ok(change)
}

/// Returns the valid value, or adds its errors to `errors`.
fn errors_into<T>(errors: &mut FieldErrors, validated: Result<T, FieldErrors>) -> Option<T> {
    match validated {
        Ok(value) => Some(value),
        Err(FieldErrors(field_errors)) => {
            for (field, messages) in field_errors {
                for message in messages {
                    errors.add(field.clone(), message);
                }
            }
            None
        }
    }
}

/// Treats an empty address as absent, because some forms always send the field.
fn non_empty(email: Option<&str>) -> Option<&str> {
    email.filter(|email| !email.trim().is_empty())
}

fn name(value: &str) -> Result<String, FieldErrors> {
    let name = text::sanitize(value);
    match name.chars().count() {
        1..=NAME_CHARS => Ok(name),
        _ => Err(FieldErrors::one("name", "must have 1 to 200 characters")),
    }
}

/// Validates a slug without changing it.
fn slug(value: &str) -> Result<String, FieldErrors> {
    if text::slug(value) == value {
        Ok(value.to_owned())
    } else {
        let message = "must have 1 to 50 lowercase letters, digits and single hyphens between them";
        Err(FieldErrors::one("slug", message))
    }
}

fn url(value: &str) -> Result<String, FieldErrors> {
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| value.strip_prefix(scheme));
    let has_host = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
    let is_plain = !value.chars().any(|c| c.is_whitespace() || c.is_control());
    if has_host && is_plain && value.chars().count() <= URL_CHARS {
        Ok(value.to_owned())
    } else {
        let message = format!("must be an http or https URL of at most {URL_CHARS} characters");
        Err(FieldErrors::one("logo_url", message))
    }
}

fn plan_id(value: &str) -> Result<&'static str, FieldErrors> {
    let plan = billing::plan(value).map(|plan| plan.id);
    plan.ok_or_else(|| FieldErrors::one("plan", "must be free, starter, growth or scale"))
}

fn status(value: &str) -> Result<AccountStatus, FieldErrors> {
    value
        .parse()
        .map_err(|_| FieldErrors::one("status", "must be one of active, suspended"))
}

/// Maps a duplicate slug to an error of the field `slug`.
fn duplicate_to_field_error<T>(stored: Result<T, StoreError>) -> Result<T, AdministrationError> {
    match stored {
        Ok(value) => Ok(value),
        Err(error) => Err(match error.into_field_errors() {
            Ok(errors) => AdministrationError::Invalid(errors),
            Err(error) => AdministrationError::Store(error),
        }),
    }
}
