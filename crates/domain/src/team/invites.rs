//! Use cases of inviting members: list, create and revoke invites.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use time::Duration;

use super::roles::{parse_role, permits};
use super::status::{InviteCommand, transition};
use super::{
    FirstOwner, InvitationFacts, Invite, InviteInput, InviteInsert, InviteOutcome, InviteStatus, InviteStore,
    NewInvite, TeamError, invitation,
};
use crate::mail::{OutgoingMail, RecipientHasher};
use crate::shared::{
    AccountId, Cipher, CursorPage, CursorQuery, FieldErrors, Ids, InviteId, Role, Secrets, Tenant, UserId,
    WriteOutcome, secret_hash, text,
};

/// Default lifetime of an invite, in hours.
const HOURS: i64 = 168;
/// Shortest lifetime of an invite, in hours.
const HOURS_MIN: i64 = 1;
/// Longest lifetime of an invite, in hours.
const HOURS_MAX: i64 = 8760;

/// A new invite revokes the pending invite to the same address.
const SUPERSEDED: (InviteStatus, InviteStatus) = (InviteStatus::Pending, InviteStatus::Revoked);

/// Maximum number of pending invites of an account that have not expired.
const MAX_PENDING: i64 = 100;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// Use cases of inviting members.
pub struct Invites {
    store: Arc<dyn InviteStore>,
    secrets: Arc<dyn Secrets>,
    ids: Arc<dyn Ids>,
    /// Seals the mail. `None`: no mail is sent.
    cipher: Option<Arc<dyn Cipher>>,
    recipients: Arc<dyn RecipientHasher>,
    public_url: String,
}

impl Invites {
    /// `public_url` is the base URL of the link in the mail. `cipher` seals the mails; without it no mail is sent.
    pub fn new(
        store: Arc<dyn InviteStore>,
        secrets: Arc<dyn Secrets>,
        ids: Arc<dyn Ids>,
        cipher: Option<Arc<dyn Cipher>>,
        recipients: Arc<dyn RecipientHasher>,
        public_url: &str,
    ) -> Self {
        Self {
            store,
            secrets,
            ids,
            cipher,
            recipients,
            public_url: public_url.to_owned(),
        }
    }

    /// Returns the account's invites of every status, newest first.
    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Invite>, TeamError> {
        Ok(self.store.invites(tenant.account_id, query).await?)
    }

    /// Invites an address and revokes a pending invite to the same address. Whether the user already is a member is
    /// checked at acceptance, because a user's address and membership may change until then.
    pub async fn create(&self, tenant: &Tenant, input: InviteInput) -> Result<NewInvite, TeamError> {
        let (email, role, lifetime) = validated(input)?;
        if !permits(tenant.role, role == Role::Owner) {
            return Err(TeamError::NotPermitted);
        }
        let (account_id, invited_by) = (tenant.account_id, tenant.actor.user_id);
        let facts = self.store.facts(account_id, invited_by).await?;
        let (insert, invite) = self.issue(account_id, invited_by, &facts, (email, role, lifetime));
        match self.store.insert(&insert, MAX_PENDING).await? {
            InviteOutcome::Done { mailed } => Ok(NewInvite { mailed, ..invite }),
            InviteOutcome::Full => Err(FieldErrors::one("email", limit_reached()).into()),
        }
    }

    /// Builds the invite of an account's first owner, in the name of a platform administrator: the account has no owner
    /// yet who could invite one. Errors of the address are reported as `owner_email`. Stores nothing; the caller sets
    /// `mailed` after storing it.
    pub fn first_owner(&self, owner: &FirstOwner<'_>) -> Result<(InviteInsert, NewInvite), FieldErrors> {
        let email = text::email(owner.email.trim());
        let email = email.ok_or_else(|| FieldErrors::one("owner_email", "is not a valid e-mail address"))?;
        let facts = InvitationFacts {
            now: owner.now,
            account: owner.account.to_owned(),
            inviter: owner.inviter.to_owned(),
        };
        let terms = (email, Role::Owner, Duration::hours(HOURS));
        Ok(self.issue(owner.account_id, owner.invited_by, &facts, terms))
    }

    /// Builds an invite with its token, and the data to store.
    fn issue(
        &self,
        account_id: AccountId,
        invited_by: UserId,
        facts: &InvitationFacts,
        (email, role, lifetime): (String, Role, Duration),
    ) -> (InviteInsert, NewInvite) {
        let invite = Invite {
            id: self.ids.next().into(),
            email,
            role,
            status: InviteStatus::Pending,
            expires_at: facts.now + lifetime,
            created_at: facts.now,
        };
        let token = self.secrets.token(TOKEN_BYTES);
        let accept_url = format!("{}/accept-invite?token={}", self.public_url, token.expose_secret());
        let accept_url = SecretString::from(accept_url);
        let mail = self.cipher.as_ref().map(|cipher| {
            let mail = invitation::write(&invite, facts, &accept_url);
            OutgoingMail::seal(cipher.as_ref(), account_id, self.ids.next().into(), &mail)
        });
        let recipient = self.recipients.hash(&invite.email);
        let insert = InviteInsert {
            account_id,
            invite: invite.clone(),
            invited_by,
            token_hash: secret_hash(&token),
            superseded: SUPERSEDED,
            mail,
            recipient,
        };
        let new_invite = NewInvite {
            invite,
            token,
            accept_url,
            mailed: false,
        };
        (insert, new_invite)
    }

    /// Revokes a pending invite. An accepted, expired or revoked invite is `NotFound`.
    pub async fn revoke(&self, tenant: &Tenant, id: InviteId) -> Result<(), TeamError> {
        let invite = self.store.invite(tenant.account_id, id).await?;
        let (from, to) = revocation(invite.ok_or(TeamError::NotFound)?.status)?;
        match self.store.set_status(tenant.account_id, id, from, to).await? {
            WriteOutcome::Done => Ok(()),
            // An invite never becomes pending again, so a concurrent change has ended it.
            WriteOutcome::Stale(_) | WriteOutcome::Missing => Err(TeamError::NotFound),
        }
    }
}

/// Returns the status change of a revocation.
fn revocation(from: InviteStatus) -> Result<(InviteStatus, InviteStatus), TeamError> {
    let to = transition(from, InviteCommand::Revoke).ok_or(TeamError::NotFound)?;
    Ok((from, to))
}

fn limit_reached() -> String {
    format!("cannot be invited: {MAX_PENDING} invites are pending, which is the limit; revoke one first")
}

fn validated(input: InviteInput) -> Result<(String, Role, Duration), FieldErrors> {
    let mut errors = FieldErrors::default();
    let email = input.email.as_deref().unwrap_or_default().trim();
    let email = text::email(email).unwrap_or_else(|| {
        let message = if email.is_empty() {
            "is required"
        } else {
            "is not a valid e-mail address"
        };
        errors.add("email", message);
        String::new()
    });
    let role = parse_role(input.role.as_deref()).unwrap_or_else(|message| {
        errors.add("role", message);
        Role::Viewer
    });
    let hours = input.expires_in_hours.unwrap_or(HOURS);
    if !(HOURS_MIN..=HOURS_MAX).contains(&hours) {
        errors.add("expires_in_hours", format!("must be {HOURS_MIN} to {HOURS_MAX}"));
    }
    errors.into_result()?;
    Ok((email, role, Duration::hours(hours)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_invite_supersedes_the_old_one_like_a_revocation() {
        assert_eq!(revocation(InviteStatus::Pending).unwrap(), SUPERSEDED);
    }
}
