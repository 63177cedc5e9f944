CREATE INDEX outgoing_mail_account_id_idx ON outgoing_mail (account_id);
