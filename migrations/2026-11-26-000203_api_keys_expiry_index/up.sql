CREATE INDEX CONCURRENTLY api_keys_expiry_notice_idx ON api_keys (expiry_notice, expires_at)
  WHERE expires_at IS NOT NULL;
