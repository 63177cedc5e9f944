-- Without this index, deleting a row that `profile_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY campaigns_profile_id_idx ON campaigns (account_id, profile_id) WHERE profile_id IS NOT NULL;
