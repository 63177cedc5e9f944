-- `outgoing_mail_account_id_due_at_idx` begins with the account, too.
DROP INDEX outgoing_mail_account_id_idx;
