//! Routes of members and invites.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{AccountHint, Session};
use recado_domain::shared::{InviteId, Role, TimeCursor, UserId};
use recado_domain::team::{Invite, InviteInput, NewInvite};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, SessionUser, TenantContext};
use crate::web::query::CursorParams;
use crate::web::{cookies, responses};
use crate::wiring::Services;

/// The new role of a member.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct RoleBody {
    /// The role. Only an owner can grant or revoke `owner`.
    #[schemars(required, with = "Role")]
    role: Option<String>,
}

/// A new invite.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct InviteBody {
    /// The e-mail address of the invited person.
    #[schemars(required, example = &"bia@example.com")]
    email: Option<String>,
    /// The role that the invite grants. Only an owner can grant `owner`.
    #[schemars(required, with = "Role")]
    role: Option<String>,
    /// The number of hours until the invite expires: 1 to 8760; 168 (a week) if absent.
    #[schemars(range(min = 1, max = 8760), example = 168)]
    expires_in_hours: Option<i64>,
}

/// The token of an invite.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct AcceptBody {
    /// The token from the response or mail that created the invite.
    #[schemars(required, example = &"3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    token: Option<String>,
}

/// `GET /api/team/members`
pub(super) async fn members(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams<TimeCursor>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.members.list(&tenant, &query).await?))
}

/// `PUT /api/team/members/<user id>`
pub(super) async fn change_role(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(user): Id<UserId>,
    Json(body): Json<RoleBody>,
) -> Result<HttpResponse, ApiError> {
    let changed = services.members.change_role(&tenant, user, body.role.as_deref()).await;
    services
        .shared
        .auth_cache
        .mark_membership_changed(user, tenant.account_id);
    Ok(responses::ok(changed?))
}

/// `DELETE /api/team/members/<user id>`
pub(super) async fn remove(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(user): Id<UserId>,
) -> Result<HttpResponse, ApiError> {
    let removed = services.members.remove(&tenant, user).await;
    services
        .shared
        .auth_cache
        .mark_membership_changed(user, tenant.account_id);
    removed?;
    Ok(responses::no_content())
}

/// `GET /api/team/invites`
pub(super) async fn invites(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.invites.list(&tenant, &query).await?))
}

/// `POST /api/team/invites`
pub(super) async fn invite(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<InviteBody>,
) -> Result<HttpResponse, ApiError> {
    let input = InviteInput {
        email: body.email,
        role: body.role,
        expires_in_hours: body.expires_in_hours,
    };
    let created = services.invites.create(&tenant, input).await?;
    services.shared.mailed.notify_one();
    Ok(responses::created(CreatedInvite::from(&created)))
}

/// A new invite with its token, which no later response contains.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedInvite<'a> {
    #[serde(flatten)]
    invite: &'a Invite,
    /// The one-time token. A user with this token and the invited e-mail address can accept the invite. Only this
    /// response contains it.
    #[schemars(example = &"3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    token: &'a str,
    /// The URL of the page that accepts the invite, with the token. Only this response contains it.
    #[schemars(example = &"https://app.example.com/accept-invite?token=3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    accept_url: &'a str,
    /// Whether a mail with the link was queued. `false` if the server sends no mail, or if the address was sent mail too
    /// often: at most one an hour from one account, and 5 a day from all. The invite is valid in any case.
    #[schemars(example = &true)]
    mailed: bool,
}

impl<'a> From<&'a NewInvite> for CreatedInvite<'a> {
    fn from(created: &'a NewInvite) -> Self {
        Self {
            invite: &created.invite,
            token: created.token.expose_secret(),
            accept_url: created.accept_url.expose_secret(),
            mailed: created.mailed,
        }
    }
}

/// `DELETE /api/team/invites/<id>`
pub(super) async fn revoke(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<InviteId>,
) -> Result<HttpResponse, ApiError> {
    services.invites.revoke(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `POST /api/auth/accept-invite`
pub(super) async fn accept(
    services: Data<Services>,
    Authenticated(session): SessionUser,
    request: HttpRequest,
    Json(body): Json<AcceptBody>,
) -> Result<HttpResponse, ApiError> {
    let address = services.authenticator.address(&request);
    let token = body.token.map(SecretString::from);
    // Checked before the caller joins: afterwards the new account would count as the active one.
    let had_account = has_active_account(&services, &session, &request).await?;
    let accepted = services.invitations.accept(&session, token, address).await?;
    services
        .shared
        .auth_cache
        .mark_membership_changed(session.user_id, accepted.account_id);
    let cookie = cookies::active_account(accepted.account_id, services.shared.config.cookie_secure);
    let mut response = responses::ok(accepted);
    if !had_account {
        let added = response.add_cookie(&cookie);
        added.map_err(ApiError::internal)?;
    }
    Ok(response)
}

async fn has_active_account(services: &Services, session: &Session, request: &HttpRequest) -> Result<bool, ApiError> {
    let Some(AccountHint::Named(id)) = cookies::active_account_of(request) else {
        return Ok(false);
    };
    let accounts = services.accounts.list(session).await?;
    Ok(accounts.iter().any(|membership| membership.account_id == id))
}
