//! Use case of an invited user: accepting an invite.

use std::sync::Arc;

use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::json;

use super::status::{AcceptDecision, AcceptFacts, decide_accept};
use super::{Acceptance, InviteStatus, InviteStore, PresentedInvite, TeamError};
use crate::accounts::Session;
use crate::shared::{
    AccountId, Audit, AuditAction, Event, FieldErrors, GuardOutcome, Role, retry_on_conflict, secret_hash,
};

/// The membership that an accepted invite created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Accepted {
    /// Confirmation to show to the user, in one sentence.
    #[schemars(example = &"You are now a member of Loja da Ana")]
    pub message: String,
    /// Id of the account that the user joined.
    pub account_id: AccountId,
    /// Role of the user in the account.
    pub role: Role,
}

/// Use case of an invited user.
pub struct Invitations {
    store: Arc<dyn InviteStore>,
}

impl Invitations {
    pub fn new(store: Arc<dyn InviteStore>) -> Self {
        Self { store }
    }

    /// Makes the session's user a member of the invite's account. The user needs no account of their own, and the
    /// invite's account may be suspended.
    pub async fn accept(
        &self,
        session: &Session,
        token: Option<SecretString>,
        ip_address: Option<String>,
    ) -> Result<Accepted, TeamError> {
        let Some(token) = token.filter(|token| !token.expose_secret().trim().is_empty()) else {
            return Err(FieldErrors::one("token", "is required").into());
        };
        let hash = secret_hash(&token);
        retry_on_conflict(async || {
            let presented = self.store.presented(&hash, session.user_id).await?;
            let presented = presented.ok_or(TeamError::NotFound)?;
            let (account, id, status) = (presented.account_id, presented.invite.id, presented.invite.status);
            match decide_accept(&facts(&presented, session)) {
                AcceptDecision::Unknown => Err(TeamError::NotFound),
                AcceptDecision::OtherAddress => Err(TeamError::OtherAddress),
                AcceptDecision::AlreadyMember => {
                    Err(invalid("is not needed: you are already a member of this account"))
                }
                AcceptDecision::Expire(expired) => match self.store.expire(account, id, status, expired).await? {
                    GuardOutcome::Done => Err(invalid("has expired; ask for a new invite")),
                    GuardOutcome::Stale => Ok(None),
                },
                AcceptDecision::Accept(accepted) => {
                    let acceptance = acceptance(&presented, session, accepted, ip_address.clone());
                    let outcome = self.store.accept(&acceptance).await?;
                    Ok(outcome.is_done().then(|| accepted_response(&presented)))
                }
            }
        })
        .await
    }
}

fn invalid(message: &str) -> TeamError {
    FieldErrors::one("token", message).into()
}

fn facts(presented: &PresentedInvite, session: &Session) -> AcceptFacts {
    AcceptFacts {
        status: presented.invite.status,
        expires_at: presented.invite.expires_at,
        now: presented.now,
        invited: presented.invite.email.clone(),
        // An address that is not verified proves nothing, so it matches no invite.
        presented_by: match session.email_verified {
            Some(false) => String::new(),
            _ => session.email.clone(),
        },
        is_member: presented.is_member,
    }
}

fn acceptance(
    presented: &PresentedInvite,
    session: &Session,
    accepted: InviteStatus,
    ip_address: Option<String>,
) -> Acceptance {
    let invite = &presented.invite;
    let audit = Audit {
        user_id: Some(session.user_id),
        action: AuditAction::Create,
        entity_type: "account_user".to_owned(),
        entity_id: Some(session.user_id.into()),
        changes: Some(json!({ "role": invite.role, "invited_by": presented.invited_by,
                              "invited_by_email": presented.inviter_email, "invite_id": invite.id })),
        ip_address,
        support_admin: None,
    };
    Acceptance {
        account_id: presented.account_id,
        invite: invite.id,
        status: (invite.status, accepted),
        user: session.user_id,
        role: invite.role,
        events: vec![Event::Audit(audit)],
    }
}

fn accepted_response(presented: &PresentedInvite) -> Accepted {
    Accepted {
        message: format!("You are now a member of {}", presented.account),
        account_id: presented.account_id,
        role: presented.invite.role,
    }
}
