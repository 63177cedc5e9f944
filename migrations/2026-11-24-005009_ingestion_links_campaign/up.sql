-- Without it, removing what campaign_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY links_campaign_id_idx ON links (account_id, campaign_id) WHERE campaign_id IS NOT NULL;
