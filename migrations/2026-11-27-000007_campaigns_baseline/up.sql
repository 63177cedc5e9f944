-- Campaigns, the queue of runs, and one row for each message of a run.

CREATE TABLE campaigns (
  account_id uuid NOT NULL CONSTRAINT campaigns_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  template_id uuid,
  segment_id uuid,
  segment_config jsonb,
  rfm_segments text[] NOT NULL DEFAULT '{}',
  scheduled_at timestamptz,
  variables jsonb,
  folder_id uuid,
  status text NOT NULL DEFAULT 'draft'
    CONSTRAINT campaigns_status_check
      CHECK (status IN ('draft', 'scheduled', 'sending', 'cancelled', 'completed', 'partial', 'sent')),
  total_recipients bigint NOT NULL DEFAULT 0,
  simulated boolean NOT NULL DEFAULT false,
  executed_at timestamptz,
  completed_at timestamptz,
  paused_at timestamptz,
  pause_reason text,
  -- The WhatsApp number that the run sends from, and the month whose quota its messages count towards.
  profile_id uuid,
  quota_month date,
  -- The user who scheduled the campaign: the start is attributed to them. In support mode also the e-mail address
  -- of the platform administrator.
  scheduled_by uuid,
  scheduled_support_admin text,
  -- The time of the scheduled retry, whose request is in `campaign_retries`.
  retry_scheduled_at timestamptz,
  -- The time of the freeze, in whole milliseconds. Null: the audience is not frozen.
  frozen_at timestamptz,
  -- The month whose quota holds the reservations of the run's unstarted sends. The month of the first run stays in
  -- `quota_month`, because its messages count there.
  run_quota_month date,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  version bigint NOT NULL DEFAULT 1,
  -- With the name, because the revenue report reads the names of a range of ids.
  CONSTRAINT campaigns_pkey PRIMARY KEY (account_id, id) INCLUDE (name),
  CONSTRAINT campaigns_folder_id_fkey FOREIGN KEY (account_id, folder_id) REFERENCES folders (account_id, id),
  CONSTRAINT campaigns_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id),
  -- No index: segments are only marked as deleted.
  CONSTRAINT campaigns_segment_id_fkey FOREIGN KEY (account_id, segment_id) REFERENCES segments (account_id, id),
  -- No index: templates are only marked as deleted.
  CONSTRAINT campaigns_template_id_fkey FOREIGN KEY (account_id, template_id)
    REFERENCES message_templates (account_id, id)
);
CREATE INDEX campaigns_created_at_idx ON campaigns (account_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX campaigns_due_idx ON campaigns (scheduled_at) WHERE status = 'scheduled' AND deleted_at IS NULL;
-- The latest campaigns of a period.
CREATE INDEX campaigns_executed_at_idx
  ON campaigns (account_id, executed_at DESC, id DESC) WHERE deleted_at IS NULL AND executed_at IS NOT NULL;
CREATE INDEX campaigns_folder_id_idx ON campaigns (account_id, folder_id) WHERE folder_id IS NOT NULL;
-- Attribution finds the campaigns whose run may have sent in a time window.
CREATE INDEX campaigns_frozen_updated_at_idx ON campaigns (account_id, updated_at) WHERE frozen_at IS NOT NULL;
-- Without this index, deleting a row that `profile_id` references scans the account's rows (foreign key check).
CREATE INDEX campaigns_profile_id_idx ON campaigns (account_id, profile_id) WHERE profile_id IS NOT NULL;
-- A review status from WhatsApp can pause the campaigns that are sending the template.
CREATE INDEX campaigns_template_id_idx ON campaigns (account_id, template_id) WHERE status = 'sending';
SELECT make_tenant_table('campaigns');
SELECT set_storage('campaigns', 'entity');
GRANT SELECT, INSERT, UPDATE ON campaigns TO recado_tenant;

-- The run queue. Small, so that a worker can claim runs across accounts.
CREATE TABLE campaign_queue (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  trigger text NOT NULL
    CONSTRAINT campaign_queue_trigger_check CHECK (trigger IN ('execute', 'send', 'schedule', 'retry')),
  user_id uuid,
  ip_address text,
  worker uuid,
  leased_until timestamptz,
  -- False: the campaign already is `sending`, but its recipients are not frozen yet.
  prepared boolean NOT NULL DEFAULT true,
  -- The run's position in the queue of runs that wait for a worker.
  waiting_since timestamptz NOT NULL DEFAULT now(),
  -- The platform administrator who started the run in support mode, for the run's audit entry.
  support_admin text,
  -- No worker claims the run before this time: its start could not read what it requires.
  retry_at timestamptz,
  -- The number of consecutive failed starts.
  retries integer NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_queue_pkey PRIMARY KEY (account_id, campaign_id)
);
SELECT make_tenant_table('campaign_queue');
SELECT set_storage('campaign_queue', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_queue TO recado_tenant;

-- Run content: template and mapping, frozen when the run starts. Later edits of the template do not affect the run.
CREATE TABLE campaign_run_contents (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- The domain's `RunContent`. Written once and never updated.
  content jsonb NOT NULL,
  -- The template's body text, for exports.
  body_text text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_run_contents_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_run_contents_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('campaign_run_contents');
SELECT set_storage('campaign_run_contents', 'entity');
GRANT SELECT, INSERT ON campaign_run_contents TO recado_tenant;

-- Recipient batches: a large audience is frozen as arrays of contact ids. Its send rows are created while the first
-- messages are being sent.
CREATE TABLE campaign_recipient_batches (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Batches are ordered by contact id, the order in which a run sends.
  batch_no integer NOT NULL,
  contact_ids uuid[] NOT NULL,
  -- The time of the freeze: all sends of a campaign get this time, whenever their rows are created.
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_recipient_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no),
  CONSTRAINT campaign_recipient_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- UUIDs do not compress.
ALTER TABLE campaign_recipient_batches ALTER COLUMN contact_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_recipient_batches');
SELECT set_storage('campaign_recipient_batches', 'queue');
GRANT SELECT, INSERT, DELETE ON campaign_recipient_batches TO recado_tenant;
-- FOR UPDATE requires the right to update a column.
GRANT UPDATE (batch_no) ON campaign_recipient_batches TO recado_tenant;

-- One row per recipient. The id is derived from campaign and contact, and all sends of a campaign share the time in
-- it: creating the sends twice gives the same rows, so the primary key also keeps a contact from being in a campaign
-- twice.  No foreign keys: each would cost a look-up and a row lock per send, and a lock on the other table for every
-- new partition. Campaigns and contacts are only marked as deleted; the removal of an account finds its tables in the
-- catalogue.
CREATE TABLE campaign_sends (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CONSTRAINT campaign_sends_status_check CHECK (status IN ('pending', 'sent', 'delivered', 'read', 'failed')),
  attempts integer NOT NULL DEFAULT 0,
  -- Set just before the request is sent to WhatsApp; cleared when the request certainly was not sent.
  started_at timestamptz,
  -- The earliest time of the next attempt.
  retry_at timestamptz,
  -- Outcome unknown since this time: the request may have reached WhatsApp.
  unknown_at timestamptz,
  sent_at timestamptz,
  delivered_at timestamptz,
  read_at timestamptz,
  failed_at timestamptz,
  error_code bigint,
  error_message text,
  wa_message_id text,
  -- The month whose quota the send counts towards, if it is not the campaign's: the send was retried in a later
  -- month.
  quota_month date,
  -- WhatsApp's message id of an earlier attempt: a late status update of that message does not apply to this
  -- attempt.
  superseded_wa_message_id text,
  -- Failed because WhatsApp never reported a status: the message may have arrived.
  never_confirmed boolean NOT NULL DEFAULT false,
  -- Consecutive failures with one error code before the current attempt decide the next retry: their code (null if
  -- there was none or it had no code), and how many there were.
  earlier_error_code bigint,
  earlier_failures integer NOT NULL DEFAULT 0,
  -- The price from WhatsApp's status updates, without nulls, and the status that reported it. Not indexed, so that
  -- a status update stays a HOT update.
  pricing jsonb,
  -- The time of the freeze: all sends of a campaign get this time, whenever their rows are created.
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_sends_pkey PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
-- The order in which a run sends. Not unique: a unique index needs the partition key, and `id` already is unique per
-- campaign and contact.
CREATE INDEX campaign_sends_campaign_id_idx ON campaign_sends (account_id, campaign_id, contact_id);
-- Attribution of an order looks up sends by contact. No indexed column changes when a message is sent, delivered or
-- read, so these updates are HOT updates.
CREATE INDEX campaign_sends_contact_id_idx ON campaign_sends (account_id, contact_id);
-- Finds a campaign's failed sends without reading all of its sends. Only failures and their retries write this index.
CREATE INDEX campaign_sends_failed_at_idx
  ON campaign_sends (account_id, campaign_id, failed_at) WHERE failed_at IS NOT NULL;
CREATE INDEX campaign_sends_retry_at_idx
  ON campaign_sends (account_id, campaign_id, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX campaign_sends_unknown_at_idx ON campaign_sends (unknown_at) WHERE unknown_at IS NOT NULL;
-- Counts a campaign's sends whose outcome is unknown. No send of a normal run has an entry.
CREATE INDEX campaign_sends_unknown_idx ON campaign_sends (account_id, campaign_id) WHERE unknown_at IS NOT NULL;
SELECT make_tenant_table('campaign_sends');
GRANT SELECT, INSERT, UPDATE ON campaign_sends TO recado_tenant;

-- WhatsApp's message ids, for status updates that do not name the send.
CREATE TABLE sent_messages (
  account_id uuid NOT NULL,
  wa_message_id text NOT NULL,
  send_id uuid NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT sent_messages_pkey PRIMARY KEY (account_id, wa_message_id, recorded_at)
) PARTITION BY RANGE (recorded_at);
SELECT make_tenant_table('sent_messages');
GRANT SELECT, INSERT ON sent_messages TO recado_tenant;

-- The sends of a campaign in the order of `sent_at`, for the pages of their list: an index of that column on
-- `campaign_sends` would end the HOT updates of a run. A row has the sends that one statement gave the same `sent_at`;
-- several rows can have one `sent_at`. A retry takes its sends out and may leave a row empty. `first_send_id`, the
-- smallest id at the insertion, stays and selects the partition.
CREATE TABLE campaign_send_times (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  sent_at timestamptz NOT NULL,
  first_send_id uuid NOT NULL,
  send_ids uuid[] NOT NULL,
  CONSTRAINT campaign_send_times_pkey PRIMARY KEY (account_id, campaign_id, sent_at, first_send_id)
) PARTITION BY RANGE (first_send_id);
ALTER TABLE campaign_send_times ALTER COLUMN send_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_send_times');
GRANT SELECT, INSERT, UPDATE ON campaign_send_times TO recado_tenant;

-- Sends of a campaign by status. Written in the transaction of the sends that it counts. `counter_slot()` spreads the
-- writes over slots, and readers add them up.
CREATE TABLE campaign_counter_slots (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  total bigint NOT NULL DEFAULT 0,
  pending bigint NOT NULL DEFAULT 0,
  sent bigint NOT NULL DEFAULT 0,
  delivered bigint NOT NULL DEFAULT 0,
  read bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  slot smallint NOT NULL DEFAULT 0,
  -- The time of the freeze, which all sends of the campaign share.
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_counter_slots_pkey PRIMARY KEY (account_id, campaign_id, slot),
  CONSTRAINT campaign_counter_slots_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- Finds the counter slots that are added to slot 0 once their campaign has ended.
CREATE INDEX campaign_counter_slots_unfolded_idx ON campaign_counter_slots (account_id, campaign_id) WHERE slot > 0;
-- Campaign messages are counted per campaign, at the time of its freeze, which never changes.
CREATE INDEX campaign_counters_created_at_idx ON campaign_counter_slots (account_id, created_at DESC, campaign_id DESC);
SELECT make_tenant_table('campaign_counter_slots');
SELECT set_storage('campaign_counter_slots', 'counter');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_counter_slots TO recado_tenant;

-- Sends of a campaign by status. All slots carry the time of the campaign's freeze.
CREATE VIEW campaign_counters WITH (security_invoker = true) AS
  SELECT account_id, campaign_id, created_at, sum(total)::bigint AS total, sum(pending)::bigint AS pending,
    sum(sent)::bigint AS sent, sum(delivered)::bigint AS delivered, sum(read)::bigint AS read,
    sum(failed)::bigint AS failed
  FROM campaign_counter_slots GROUP BY account_id, campaign_id, created_at;
GRANT SELECT ON campaign_counters TO recado_tenant;

-- Scheduled retries: the campaign shows the time, this row holds the request. Small, so that a worker can find due
-- retries across accounts.
CREATE TABLE campaign_retries (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  -- The requested error codes, with 0 for failures without a code; null: all.
  codes bigint[],
  force boolean NOT NULL,
  -- The user who scheduled the retry: its start is attributed to them.
  user_id uuid NOT NULL,
  support_admin text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_retries_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_retries_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
CREATE INDEX campaign_retries_due_at_idx ON campaign_retries (due_at);
SELECT make_tenant_table('campaign_retries');
SELECT set_storage('campaign_retries', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_retries TO recado_tenant;

-- The sends of a run's latest claim and those that were in flight before it. Only these can be started and have no
-- recorded result. A claim replaces the row, so its writes do not grow with the messages that a run sends. No foreign
-- key, as in `campaign_queue`: campaigns are only marked as deleted.
CREATE TABLE campaign_claims (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  send_ids uuid[] NOT NULL,
  -- Sends that were in flight when the worker began, for example after an error. Its later claims keep them.
  earlier_send_ids uuid[] NOT NULL DEFAULT '{}',
  -- The `retry_at` up to which the run has claimed its retried sends: the next claim begins there.
  retried_until timestamptz,
  CONSTRAINT campaign_claims_pkey PRIMARY KEY (account_id, campaign_id)
);
-- UUIDs do not compress.
ALTER TABLE campaign_claims ALTER COLUMN send_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_claims');
SELECT set_storage('campaign_claims', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_claims TO recado_tenant;

CREATE TABLE campaign_retry_batches (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Batches are ordered by contact id. Batch 0 searches the sends that an early end of the earlier run left
  -- untried.
  batch_no integer NOT NULL,
  -- The chosen sends; empty for the search.
  send_ids uuid[] NOT NULL,
  -- The contact after which the search goes on.
  searched_until uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_retry_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no),
  CONSTRAINT campaign_retry_batches_search_check CHECK ((batch_no = 0) = (searched_until IS NOT NULL)),
  CONSTRAINT campaign_retry_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- UUIDs do not compress.
ALTER TABLE campaign_retry_batches ALTER COLUMN send_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_retry_batches');
SELECT set_storage('campaign_retry_batches', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_retry_batches TO recado_tenant;
