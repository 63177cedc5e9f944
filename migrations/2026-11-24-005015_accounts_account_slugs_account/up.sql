-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX CONCURRENTLY account_slugs_account_id_idx ON account_slugs (account_id);
