//! What the reference says of teams.

use recado_domain::shared::CursorPage;
use recado_domain::team::{Accepted, Invite, Member};
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, id_of, limit_of, no_content, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::team::{AcceptBody, CreatedInvite, InviteBody, RoleBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Team",
    description: "The people in an account, and how somebody new joins.",
};

const MEMBER: &str = "The member's user id.";

pub(crate) fn members() -> Operation {
    let cursor = "The `nextCursor` of the answer before; absent for the first members.";
    Operation::new("List members", "The people in the account with their roles.")
        .takes(text("cursor", cursor).example("0190a1b2-c3d4-7e5f-8a9b-000037386ae0"))
        .takes(limit_of((20, 100)))
        .answers(data::<CursorPage<Member>>("Members, and where the next ones begin."))
}

pub(crate) fn change_role() -> Operation {
    let description =
        "Gives a member another role. Only an owner gives or takes the role `owner`, and the last owner stays one.";
    Operation::new("Change a member's role", description)
        .takes(id_of(MEMBER))
        .body(Body::json::<RoleBody>())
        .answers(data::<Member>("The member with the new role."))
        .refuses(ErrorCode::Auth, "Here also: an admin gives or takes the role `owner`.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "The team is being changed by other requests.")
}

pub(crate) fn remove() -> Operation {
    let description = "Takes a person out of the account. Only an owner removes an owner, and the last owner stays. \
                API keys that the person made go on working.";
    Operation::new("Remove a member", description)
        .takes(id_of(MEMBER))
        .answers(no_content("The person is no member any more."))
        .refuses(ErrorCode::Auth, "Here also: an admin removes an owner.")
        .refuses(ErrorCode::Invalid, "The member is the account's last owner.")
        .refuses(ErrorCode::Conflict, "The team is being changed by other requests.")
}

pub(crate) fn invites() -> Operation {
    Operation::new("List invites", "Invites of the account in every state, newest first.")
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Invite>>("Invites, and where the next ones begin."))
}

pub(crate) fn invite() -> Operation {
    let description = "Invites somebody by their e-mail address; an earlier pending invite to the same address is \
                revoked. The token is told in this answer alone; where the installation sends mail, it is mailed, too.";
    Operation::new("Invite somebody", description)
        .body(Body::json::<InviteBody>().example(json!({ "email": "bia@example.com", "role": "member" })))
        .answers(created::<CreatedInvite<'_>>("The invite with its token.").example(json!({ "role": "member" })))
        .refuses(ErrorCode::Auth, "Here also: an admin gives the role `owner`.")
        .refuses(ErrorCode::Invalid, "The person is a member already.")
}

pub(crate) fn revoke() -> Operation {
    Operation::new(
        "Revoke an invite",
        "Takes an invite back: nobody can accept it any more.",
    )
    .takes(id_of("The invite's id."))
    .answers(no_content("The invite is revoked."))
}

pub(crate) fn accept() -> Operation {
    let description = "Makes the caller a member of the account that an invite is for. It becomes the active account \
                of a caller who had none.";
    let cookie =
        "`svc-active-account-id`, which names the account for a year; absent where the caller had an active one.";
    let accepted = data::<Accepted>("The caller is a member now.").example(json!({ "role": "member" }));
    Operation::new("Accept an invite", description)
        .body(Body::json::<AcceptBody>())
        .answers(accepted.header("Set-Cookie", cookie, json!({ "type": "string" })))
        .refuses(
            ErrorCode::Forbidden,
            "Here also: the invite is for another e-mail address.",
        )
        .refuses(ErrorCode::NotFound, "No pending invite has this token.")
        .refuses(
            ErrorCode::Invalid,
            "The token is missing, the invite is expired, or the caller is a member already.",
        )
        .refuses(ErrorCode::Conflict, "The invite is being changed by other requests.")
}
