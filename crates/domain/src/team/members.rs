//! Use cases of members: list, change the role, remove.

use std::sync::Arc;

use serde_json::json;

use super::roles::{MemberChange, MemberRefusal, MemberStep, decide, parse_role, permits};
use super::{Member, MemberStore, MemberWrite, TeamError};
use crate::shared::{
    AuditAction, CursorPage, CursorQuery, Event, FieldErrors, Role, Tenant, TimeCursor, UserId, retry_on_conflict,
};

/// Use cases of members.
pub struct Members {
    store: Arc<dyn MemberStore>,
}

impl Members {
    pub fn new(store: Arc<dyn MemberStore>) -> Self {
        Self { store }
    }

    /// Returns the members, oldest membership first.
    pub async fn list(
        &self,
        tenant: &Tenant,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<CursorPage<Member>, TeamError> {
        Ok(self.store.members(tenant.account_id, query).await?)
    }

    /// Changes a member's role.
    pub async fn change_role(&self, tenant: &Tenant, user: UserId, role: Option<&str>) -> Result<Member, TeamError> {
        let role = parse_role(role).map_err(|message| FieldErrors::one("role", message))?;
        // Checked before any read: a caller without permission must not learn whether the member exists.
        if !permits(tenant.role, role == Role::Owner) {
            return Err(TeamError::NotPermitted);
        }
        self.apply(tenant, user, MemberChange::Role(role)).await?;
        let changed = self.store.member(tenant.account_id, user).await?;
        // A concurrent request may have removed the member.
        changed.ok_or(TeamError::NotFound)
    }

    /// Removes a member.
    pub async fn remove(&self, tenant: &Tenant, user: UserId) -> Result<(), TeamError> {
        self.apply(tenant, user, MemberChange::Removal).await
    }

    /// Decides on the stored roles, not on the role that the access check saw. Retries after a concurrent change. The
    /// decision depends on several rows, so the store compares all facts under the team's lock, not a row version.
    async fn apply(&self, tenant: &Tenant, target: UserId, change: MemberChange) -> Result<(), TeamError> {
        let (account_id, actor) = (tenant.account_id, tenant.actor.user_id);
        retry_on_conflict(async || {
            let facts = self.store.facts(account_id, actor, target).await?;
            let step = decide(facts, change).map_err(|refusal| to_team_error(refusal, change))?;
            let events = match step {
                MemberStep::Nothing => return Ok(Some(())),
                MemberStep::SetRole { from, to } => {
                    let changes = json!({ "role": to, "previousRole": from });
                    vec![audit(tenant, AuditAction::Update, target, changes)]
                }
                MemberStep::Remove { from } => {
                    vec![audit(tenant, AuditAction::Delete, target, json!({ "role": from }))]
                }
            };
            let write = MemberWrite {
                account_id,
                actor,
                target,
                facts,
                step,
                events,
            };
            Ok(self.store.write(&write).await?.is_done().then_some(()))
        })
        .await
    }
}

fn audit(tenant: &Tenant, action: AuditAction, target: UserId, changes: serde_json::Value) -> Event {
    Event::Audit(tenant.audit(action, "account_user", target).with_changes(changes))
}

fn to_team_error(refusal: MemberRefusal, change: MemberChange) -> TeamError {
    match refusal {
        MemberRefusal::Unknown => TeamError::NotFound,
        MemberRefusal::NotPermitted => TeamError::NotPermitted,
        MemberRefusal::LastOwner => {
            let field = match change {
                MemberChange::Role(_) => "role",
                MemberChange::Removal => "user_id",
            };
            FieldErrors::one(field, "belongs to the account's last owner").into()
        }
    }
}
