-- Inbox: gateway events whose effect is committed. The row is inserted in the transaction of the effect, so that an
-- event has its effect once, even if several workers hold it. It is deleted together with the event.
CREATE TABLE applied_gateway_events (
  account_id uuid NOT NULL CONSTRAINT applied_gateway_events_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  event_id uuid NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT applied_gateway_events_pkey PRIMARY KEY (account_id, event_id)
);
CREATE INDEX applied_gateway_events_event_id_idx ON applied_gateway_events (event_id);
SELECT make_tenant_table('applied_gateway_events');
