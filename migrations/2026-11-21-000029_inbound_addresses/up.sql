-- An inbound endpoint may have a URL; only an outbound endpoint requires one. Every existing row satisfies the new
-- check, and there are few: at most 200 per account.

ALTER TABLE webhook_endpoints DROP CONSTRAINT webhook_endpoints_url_check,
  -- safe: weaker than the check that it replaces, and the table is small.
  ADD CONSTRAINT webhook_endpoints_url_check CHECK (direction = 'inbound' OR url IS NOT NULL);
