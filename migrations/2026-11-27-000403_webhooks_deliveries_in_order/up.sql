-- A worker continues after the last claimed delivery of an endpoint, so the order of its queue is total.
DROP INDEX webhook_deliveries_claim_idx;
CREATE INDEX webhook_deliveries_claim_idx ON webhook_deliveries (endpoint_id, next_attempt_at, event_id)
  WHERE state = 'waiting';
-- Finds the endpoints of deliveries that became due since a time.
CREATE INDEX webhook_deliveries_next_attempt_at_idx ON webhook_deliveries (next_attempt_at) WHERE state = 'waiting';
