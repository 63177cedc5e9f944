-- Metric events are partitioned by the month in which they occurred, as they are listed and counted, so that a month is
-- removed by dropping its partition.
--
-- No foreign key refers to or from them: it would lock the other table while a month is dropped. A writer of events
-- holds the lock of their metric, and contacts are never deleted before their account is.

DROP TABLE metric_events;

-- Directory: an event is identified by an id that its sender chose, over all months. It stays when the event is
-- dropped, so that an event which is reported once more is not counted again.
CREATE TABLE metric_event_keys (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  occurred_at timestamptz NOT NULL,
  CONSTRAINT metric_event_keys_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('metric_event_keys');
GRANT SELECT, INSERT ON metric_event_keys TO recado_tenant;

CREATE TABLE metric_events (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  metric_name text NOT NULL,
  contact_id uuid,
  value numeric,
  currency text,
  source text NOT NULL,
  properties jsonb NOT NULL DEFAULT '{}',
  occurred_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- The order of a metric's list.
  CONSTRAINT metric_events_pkey PRIMARY KEY (account_id, metric_name, occurred_at, id)
) PARTITION BY RANGE (occurred_at);
SELECT make_tenant_table('metric_events');
GRANT SELECT, INSERT ON metric_events TO recado_tenant;
