ALTER TABLE webhook_endpoints
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  ADD COLUMN version bigint NOT NULL DEFAULT 1;
