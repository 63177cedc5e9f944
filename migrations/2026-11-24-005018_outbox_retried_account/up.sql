-- Without this index, deleting an account scans the retried events of all accounts.
CREATE INDEX CONCURRENTLY outbox_events_retried_account_id_idx ON outbox_events (account_id) WHERE retry_at IS NOT NULL;
