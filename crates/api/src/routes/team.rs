//! Routes of members and invites.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::accounts::{AccountHint, Accounts, Session};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CursorPage, InviteId, Role, TimeCursor, UserId, timestamp};
use recado_domain::team::{
    Accepted, Invitations, Invite, InviteInput, InviteStatus, Invites, Member, Members, NewInvite,
};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::auth::Authenticator;
use crate::web::auth_cache::AuthCache;
use crate::web::body::Json;
use crate::web::cookies::{self, AccountCookies};
use crate::web::extractors::{Authenticated, Id, SessionUser, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, no_content, path_id};
use crate::web::parameters::{CursorParam, LIMIT};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::WorkerSignals;

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Team",
    description: "Members of an account, and invites for new members.",
};

const MEMBER: &str = "The member's user id.";

/// The new role of a member.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct RoleBody {
    /// The role. Only an owner can grant or revoke `owner`.
    #[schemars(required, with = "Role")]
    role: Option<String>,
}

/// A new invite.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct InviteBody {
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
struct AcceptBody {
    /// The token from the response or mail that created the invite.
    #[schemars(required, example = &"3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    token: Option<String>,
}

const CURSOR: CursorParam = CursorParam::first_page(Some("0190a1b2-c3d4-7e5f-8a9b-000037386ae0"));

response_type! {
    /// A member of an account.
    #[schemars(rename = "Member")]
    struct MemberResponse from member: Member {
        /// Id of the user.
        user_id: UserId,
        /// E-mail address of the user, as the identity provider reports it.
        #[schemars(example = &"ana@example.com")]
        email: String,
        /// Name of the user; null if the identity provider reports none.
        #[schemars(example = &"Ana Lima")]
        name: Option<String>,
        /// Role of the user in the account.
        role: Role,
        /// When the user last switched to the account; null if never.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_active_at: Option<OffsetDateTime>,
        /// When the user became a member.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

response_type! {
    /// An offer of a role in an account. Only the response that creates it contains its token.
    #[schemars(rename = "Invite")]
    struct InviteResponse from invite: Invite {
        /// Id of the invite.
        id: InviteId,
        /// The invited e-mail address, as it was entered.
        #[schemars(example = &"bia@example.com")]
        email: String,
        /// The role that the invited user will have.
        role: Role,
        /// Status of the invite.
        status: InviteStatus,
        /// When the invite expires.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        expires_at: OffsetDateTime,
        /// When the invite was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/team/members`
async fn members(
    members: Data<Members>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams<TimeCursor>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        members.list(&tenant, &query).await?.map(MemberResponse::from),
    ))
}

pub(super) const MEMBERS: Endpoint = endpoint!(members, {
    Operation::new("List members", "Returns the account's members with their roles.")
        .takes(&CURSOR)
        .takes(&LIMIT)
        .responds(data::<CursorPage<MemberResponse>>(
            "A page of members and its `nextCursor`.",
        ))
});

/// `PUT /api/team/members/<user id>`
async fn change_role(
    auth_cache: Data<AuthCache>,
    members: Data<Members>,
    Authenticated(tenant): TenantContext,
    Id(user): Id<UserId>,
    Json(body): Json<RoleBody>,
) -> Result<HttpResponse, ApiError> {
    let changed = members.change_role(&tenant, user, body.role.as_deref()).await;
    auth_cache.mark_membership_changed(user, tenant.account_id);
    Ok(responses::ok(MemberResponse::from(changed?)))
}

pub(super) const CHANGE_ROLE: Endpoint = endpoint!(change_role, {
    let description =
        "Changes a member's role. Only an owner can grant or revoke `owner`. The last owner cannot be demoted.";
    Operation::new("Change a member's role", description)
        .takes(path_id(MEMBER))
        .body(Body::json::<RoleBody>())
        .responds(data::<MemberResponse>("The member with the new role."))
        .refuses(ErrorCode::Auth, "An admin cannot grant or revoke the role `owner`.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "Other requests are changing the team. Try again.")
});

/// `DELETE /api/team/members/<user id>`
async fn remove(
    auth_cache: Data<AuthCache>,
    members: Data<Members>,
    Authenticated(tenant): TenantContext,
    Id(user): Id<UserId>,
) -> Result<HttpResponse, ApiError> {
    let removed = members.remove(&tenant, user).await;
    auth_cache.mark_membership_changed(user, tenant.account_id);
    removed?;
    Ok(responses::no_content())
}

pub(super) const REMOVE: Endpoint = endpoint!(remove, {
    let description = "Removes a member from the account. Only an owner can remove an owner; the last owner cannot be \
                removed. API keys that the member created keep working.";
    Operation::new("Remove a member", description)
        .takes(path_id(MEMBER))
        .responds(no_content("The user is no longer a member."))
        .refuses(ErrorCode::Auth, "An admin cannot remove an owner.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "Other requests are changing the team. Try again.")
});

/// `GET /api/team/invites`
async fn invites(
    invites: Data<Invites>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        invites.list(&tenant, &query).await?.map(InviteResponse::from),
    ))
}

pub(super) const INVITES: Endpoint = endpoint!(invites, {
    Operation::new(
        "List invites",
        "Returns the account's invites in every status, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<InviteResponse>>(
        "A page of invites and its `nextCursor`.",
    ))
});

/// `POST /api/team/invites`
async fn invite(
    signals: Data<WorkerSignals>,
    invites: Data<Invites>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<InviteBody>,
) -> Result<HttpResponse, ApiError> {
    let input = InviteInput {
        email: body.email,
        role: body.role,
        expires_in_hours: body.expires_in_hours,
    };
    let created = invites.create(&tenant, input).await?;
    signals.wake_mail();
    Ok(responses::created(CreatedInvite::from(&created)))
}

pub(super) const INVITE: Endpoint = endpoint!(invite, {
    let description = "Invites a person by e-mail address and revokes an earlier pending invite to the same address. \
                Only this response contains the token; if the server is configured to send mail, the token is mailed \
                as well.";
    Operation::new("Create an invite", description)
        .body(Body::json::<InviteBody>().example(json!({ "email": "bia@example.com", "role": "member" })))
        .responds(created::<CreatedInvite<'_>>("The invite with its token.").example(json!({ "role": "member" })))
        .refuses(ErrorCode::Auth, "An admin cannot grant the role `owner`.")
        .refuses(
            ErrorCode::Invalid,
            "The person already is a member, or the account has 100 pending invites.",
        )
});

/// A new invite with its token, which no later response contains.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedInvite<'a> {
    #[serde(flatten)]
    invite: InviteResponse,
    /// The one-time token. A user with this token and the invited e-mail address can accept the invite. Only this
    /// response contains it.
    #[schemars(example = &"3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    token: &'a str,
    /// The URL of the page that accepts the invite, with the token. Only this response contains it.
    #[schemars(example = &"https://app.example.com/accept-invite?token=3q2-7wEjRfWkZQm1c9oD8HkYxT5bVnLs")]
    accept_url: &'a str,
    /// Whether a mail with the link was queued. `false` if the server sends no mail, or if the address was sent mail
    /// too often: at most one an hour from one account, and 5 a day from all. The invite is valid in any case.
    #[schemars(example = &true)]
    mailed: bool,
}

impl<'a> From<&'a NewInvite> for CreatedInvite<'a> {
    fn from(created: &'a NewInvite) -> Self {
        Self {
            invite: created.invite.clone().into(),
            token: created.token.expose_secret(),
            accept_url: created.accept_url.expose_secret(),
            mailed: created.mailed,
        }
    }
}

/// `DELETE /api/team/invites/<id>`
async fn revoke(
    invites: Data<Invites>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<InviteId>,
) -> Result<HttpResponse, ApiError> {
    invites.revoke(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const REVOKE: Endpoint = endpoint!(revoke, {
    Operation::new(
        "Revoke an invite",
        "Revokes an invite, so that it can no longer be accepted.",
    )
    .takes(path_id("The invite's id."))
    .responds(no_content("The invite is revoked."))
});

/// `POST /api/auth/accept-invite`
async fn accept(
    account_cookies: Data<AccountCookies>,
    authenticator: Data<Authenticator>,
    invitations: Data<Invitations>,
    Authenticated(session): SessionUser,
    request: HttpRequest,
    Json(body): Json<AcceptBody>,
) -> Result<HttpResponse, ApiError> {
    let address = authenticator.address(&request);
    let token = body.token.map(SecretString::from);
    // Checked before the caller joins: afterwards the new account would count as the active one.
    let had_account = has_active_account(&authenticator.accounts, &session, &request).await?;
    let accepted = invitations.accept(&session, token, address).await?;
    authenticator
        .auth_cache
        .mark_membership_changed(session.user_id, accepted.account_id);
    let cookie = account_cookies.activate(accepted.account_id);
    let mut response = responses::ok(accepted);
    if !had_account {
        let added = response.add_cookie(&cookie);
        added.map_err(ApiError::internal)?;
    }
    Ok(response)
}

pub(super) const ACCEPT: Endpoint = endpoint!(accept, {
    let description = "Makes the caller a member of the invite's account. If the caller had no active account, it \
                becomes the active account.";
    let cookie =
        "Sets `svc-active-account-id` to the account's id for one year. Absent if the caller had an active account.";
    let accepted = data::<Accepted>("The caller is now a member.").example(json!({ "role": "member" }));
    Operation::new("Accept an invite", description)
        .body(Body::json::<AcceptBody>())
        .responds(accepted.header("Set-Cookie", cookie, json!({ "type": "string" })))
        .refuses(ErrorCode::Forbidden, "The invite is for another e-mail address.")
        .refuses(ErrorCode::NotFound, "No pending invite has this token.")
        .refuses(
            ErrorCode::Invalid,
            "The token is missing, the invite has expired, or the caller already is a member.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the invite. Try again.",
        )
});

async fn has_active_account(accounts: &Accounts, session: &Session, request: &HttpRequest) -> Result<bool, ApiError> {
    let Some(AccountHint::Named(id)) = cookies::active_account_of(request) else {
        return Ok(false);
    };
    let accounts = accounts.list(session).await?;
    Ok(accounts.iter().any(|membership| membership.account_id == id))
}
