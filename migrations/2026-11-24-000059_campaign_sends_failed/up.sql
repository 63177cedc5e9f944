-- Finds a campaign's failed sends without reading all of its sends. Only failures and their retries write this index.
CREATE INDEX CONCURRENTLY campaign_sends_failed_at_idx ON campaign_sends (account_id, campaign_id, failed_at)
  WHERE failed_at IS NOT NULL;
