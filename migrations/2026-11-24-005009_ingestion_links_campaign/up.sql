-- Without this index, deleting a row that `campaign_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY links_campaign_id_idx ON links (account_id, campaign_id) WHERE campaign_id IS NOT NULL;
