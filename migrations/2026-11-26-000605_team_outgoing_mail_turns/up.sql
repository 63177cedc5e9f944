-- The mail worker takes one mail of each account in turn: from one account to the next that has due mail.
CREATE INDEX CONCURRENTLY outgoing_mail_account_id_due_at_idx ON outgoing_mail (account_id, due_at, id);
