//! OpenAPI documentation of teams.

use recado_domain::shared::CursorPage;
use recado_domain::team::{Accepted, Invite, Member};
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, no_content, path_id, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::team::{AcceptBody, CreatedInvite, InviteBody, RoleBody};
use crate::web::parameters::LIMIT;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Team",
    description: "Members of an account, and invites for new members.",
};

const MEMBER: &str = "The member's user id.";

pub(crate) fn members() -> Operation {
    let cursor = "The `nextCursor` of the previous page. Omit it for the first page.";
    Operation::new("List members", "Returns the account's members with their roles.")
        .takes(text("cursor", cursor).example("0190a1b2-c3d4-7e5f-8a9b-000037386ae0"))
        .takes(&LIMIT)
        .responds(data::<CursorPage<Member>>("A page of members and its `nextCursor`."))
}

pub(crate) fn change_role() -> Operation {
    let description =
        "Changes a member's role. Only an owner can grant or revoke `owner`. The last owner cannot be demoted.";
    Operation::new("Change a member's role", description)
        .takes(path_id(MEMBER))
        .body(Body::json::<RoleBody>())
        .responds(data::<Member>("The member with the new role."))
        .refuses(ErrorCode::Auth, "An admin cannot grant or revoke the role `owner`.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "Other requests are changing the team. Try again.")
}

pub(crate) fn remove() -> Operation {
    let description = "Removes a member from the account. Only an owner can remove an owner; the last owner cannot be \
                removed. API keys that the member created keep working.";
    Operation::new("Remove a member", description)
        .takes(path_id(MEMBER))
        .responds(no_content("The user is no longer a member."))
        .refuses(ErrorCode::Auth, "An admin cannot remove an owner.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "Other requests are changing the team. Try again.")
}

pub(crate) fn invites() -> Operation {
    Operation::new(
        "List invites",
        "Returns the account's invites in every status, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<Invite>>("A page of invites and its `nextCursor`."))
}

pub(crate) fn invite() -> Operation {
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
}

pub(crate) fn revoke() -> Operation {
    Operation::new(
        "Revoke an invite",
        "Revokes an invite, so that it can no longer be accepted.",
    )
    .takes(path_id("The invite's id."))
    .responds(no_content("The invite is revoked."))
}

pub(crate) fn accept() -> Operation {
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
}
