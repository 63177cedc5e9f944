-- Without this index, deleting a row that `profile_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY message_templates_profile_id_idx ON message_templates (account_id, profile_id) WHERE profile_id IS NOT NULL;
