-- Without it, removing an account passes over the events of all accounts that are set aside.
CREATE INDEX CONCURRENTLY outbox_events_retried_account_id_idx ON outbox_events (account_id) WHERE retry_at IS NOT NULL;
