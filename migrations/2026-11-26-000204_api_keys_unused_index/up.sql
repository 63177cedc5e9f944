-- GREATEST ignores nulls: the latest of creation or last use, and the last notification about it.
CREATE INDEX CONCURRENTLY api_keys_unused_since_idx
  ON api_keys (greatest(coalesce(last_used_at, created_at), unused_notified_at));
