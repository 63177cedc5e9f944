-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX CONCURRENTLY link_codes_account_id_idx ON link_codes (account_id);
