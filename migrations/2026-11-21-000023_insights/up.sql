-- Rollups of messages, contacts and conversations, so that no report counts rows; indexes for exports in time order;
-- and the schedule of RFM calculations.

-- Campaign messages are counted per campaign, at the time of its freeze, which never changes.
CREATE INDEX campaign_counters_created_at_idx
  ON campaign_counters (account_id, created_at DESC, campaign_id DESC);

-- Rollup of replies by status, and of inbound messages: sums of a quarter of an hour (15 `bucket_minutes`) and of a
-- UTC day (1440), by the time at which a message was written. Ninety days are 8640 small rows that are stored close
-- together.
CREATE TABLE message_rollups (
  account_id uuid NOT NULL CONSTRAINT message_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_start timestamptz NOT NULL,
  bucket_minutes smallint NOT NULL CONSTRAINT message_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  sent integer NOT NULL DEFAULT 0,
  delivered integer NOT NULL DEFAULT 0,
  read integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  received integer NOT NULL DEFAULT 0,
  CONSTRAINT message_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start)
) WITH (fillfactor = 90);
SELECT make_tenant_table('message_rollups');
INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed, received)
SELECT account_id, bucket_minutes, date_bin(bucket_minutes * interval '1 minute', created_at, '2000-01-01 00:00Z'),
  count(*) FILTER (WHERE status = 'sent'), count(*) FILTER (WHERE status = 'delivered'),
  count(*) FILTER (WHERE status = 'read'), count(*) FILTER (WHERE status = 'failed'),
  count(*) FILTER (WHERE status = 'received')
FROM messages CROSS JOIN unnest('{15, 1440}'::smallint[]) AS bucket_minutes
WHERE status <> 'pending' GROUP BY 1, 2, 3;

-- Contacts that are not deleted, by the UTC day of their creation.
CREATE TABLE contact_counts (
  account_id uuid NOT NULL CONSTRAINT contact_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  day date NOT NULL,
  contacts bigint NOT NULL,
  CONSTRAINT contact_counts_pkey PRIMARY KEY (account_id, day)
) WITH (fillfactor = 50);
SELECT make_tenant_table('contact_counts');
INSERT INTO contact_counts (account_id, day, contacts)
SELECT account_id, (created_at AT TIME ZONE 'UTC')::date, count(*) FROM contacts WHERE deleted_at IS NULL GROUP BY 1, 2;

-- Conversations with contacts that are not deleted.
CREATE TABLE conversation_counts (
  account_id uuid NOT NULL CONSTRAINT conversation_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  status text NOT NULL CONSTRAINT conversation_counts_status_check CHECK (status IN ('open', 'closed')),
  conversations bigint NOT NULL,
  CONSTRAINT conversation_counts_pkey PRIMARY KEY (account_id, status)
) WITH (fillfactor = 50);
SELECT make_tenant_table('conversation_counts');
INSERT INTO conversation_counts (account_id, status, conversations)
SELECT v.account_id, v.status, count(*)
FROM conversations v JOIN contacts c ON c.account_id = v.account_id AND c.id = v.contact_id AND c.deleted_at IS NULL
GROUP BY 1, 2;

-- Indexes for the latest campaigns and the latest messages of a period.
CREATE INDEX campaigns_executed_at_idx ON campaigns (account_id, executed_at DESC, id DESC)
  WHERE deleted_at IS NULL AND executed_at IS NOT NULL;
CREATE INDEX messages_written_idx ON messages (account_id, created_at DESC, id DESC);

-- The schedule of RFM calculations: next due time, lease of the worker, and time of the last calculation.
CREATE TABLE rfm_calculations (
  account_id uuid NOT NULL CONSTRAINT rfm_calculations_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  due_at timestamptz NOT NULL,
  worker uuid,
  leased_until timestamptz,
  calculated_at timestamptz,
  CONSTRAINT rfm_calculations_pkey PRIMARY KEY (account_id)
);
CREATE INDEX rfm_calculations_due_at_idx ON rfm_calculations (due_at);
SELECT make_tenant_table('rfm_calculations');

-- Contacts by RFM segment. Written with their scores.
CREATE TABLE rfm_counts (
  account_id uuid NOT NULL CONSTRAINT rfm_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  segment text NOT NULL,
  contacts bigint NOT NULL,
  CONSTRAINT rfm_counts_pkey PRIMARY KEY (account_id, segment)
);
SELECT make_tenant_table('rfm_counts');
INSERT INTO rfm_counts (account_id, segment, contacts)
SELECT account_id, segment, count(*) FROM contact_rfm GROUP BY 1, 2;
