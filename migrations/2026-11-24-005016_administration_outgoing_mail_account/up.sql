-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX CONCURRENTLY outgoing_mail_account_id_idx ON outgoing_mail (account_id);
