DROP TABLE outgoing_mail;
DROP TABLE invite_tokens;
DROP TABLE team_invites;
