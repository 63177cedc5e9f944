-- Without this index, deleting a row that `campaign_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY orders_campaign_id_idx ON orders (account_id, campaign_id) WHERE campaign_id IS NOT NULL;
