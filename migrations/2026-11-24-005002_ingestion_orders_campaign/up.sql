-- Without it, removing what campaign_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY orders_campaign_id_idx ON orders (account_id, campaign_id) WHERE campaign_id IS NOT NULL;
