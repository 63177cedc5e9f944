//! Text of the invitation mail.

use secrecy::{ExposeSecret, SecretString};
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use super::{InvitationFacts, Invite};
use crate::mail::{Mail, name_in_mail};

/// Writes the mail with an invite's link.
pub(super) fn write(invite: &Invite, facts: &InvitationFacts, accept_url: &SecretString) -> Mail {
    let (account, inviter) = (name_in_mail(&facts.account), name_in_mail(&facts.inviter));
    Mail {
        to: invite.email.clone(),
        subject: format!("Join {account} on Recado"),
        text: format!(
            "Hello,\n\n\
             {inviter} invites you to join {account} on Recado with the role {role}.\n\n\
             Accept the invitation here:\n\
             {link}\n\n\
             The link works only for this e-mail address, until {end}.\n\
             If you did not expect this mail, you can ignore it.\n",
            role = invite.role,
            link = accept_url.expose_secret(),
            end = day_and_time(invite.expires_at),
        ),
    }
}

fn day_and_time(time: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    time.to_offset(UtcOffset::UTC).format(&format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::InviteStatus;
    use super::*;
    use crate::shared::Role;

    fn written(account: &str, inviter: &str) -> Mail {
        let invite = Invite {
            id: Uuid::from_u128(1).into(),
            email: "Bia@example.com".into(),
            role: Role::Admin,
            status: InviteStatus::Pending,
            expires_at: datetime!(2026-03-08 09:30:59 -3),
            created_at: datetime!(2026-03-01 12:30:59 UTC),
        };
        let facts = InvitationFacts {
            now: invite.created_at,
            account: account.into(),
            inviter: inviter.into(),
        };
        let link = SecretString::from("https://recado.example/accept-invite?token=abc");
        write(&invite, &facts, &link)
    }

    #[test]
    fn invitation_mail_names_inviter_account_role_link_and_expiry() {
        let mail = written("Loja da Ana", "Ana");
        assert_eq!(mail.to, "Bia@example.com");
        assert_eq!(mail.subject, "Join Loja da Ana on Recado");
        for part in [
            "Ana invites you to join Loja da Ana on Recado with the role admin.",
            "\nhttps://recado.example/accept-invite?token=abc\n",
            "until 2026-03-08 12:30 UTC",
        ] {
            assert!(mail.text.contains(part), "{part}: {}", mail.text);
        }
    }

    #[test]
    fn invitation_mail_removes_addresses_and_line_breaks_from_names() {
        let mail = written("Loja\r\nBcc: all@example.com", "Ana\n\nClick https://evil.example\u{0}");
        assert_eq!(mail.subject, "Join Loja Bcc: all@example.com on Recado");
        assert!(mail.text.contains("\n\nAna Click … invites you"), "{}", mail.text);
        assert!(!mail.text.contains("evil.example"), "{}", mail.text);
        assert!(!mail.text.contains('\r'));
    }
}
