DROP INDEX webhook_deliveries_next_attempt_at_idx, webhook_deliveries_claim_idx;
CREATE INDEX webhook_deliveries_claim_idx ON webhook_deliveries (endpoint_id, next_attempt_at) WHERE state = 'waiting';
