-- Campaigns, their sends, and the run queue.

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
  status text NOT NULL DEFAULT 'draft' CONSTRAINT campaigns_status_check
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
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  CONSTRAINT campaigns_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT campaigns_template_id_fkey FOREIGN KEY (account_id, template_id)
    REFERENCES message_templates (account_id, id),
  CONSTRAINT campaigns_segment_id_fkey FOREIGN KEY (account_id, segment_id) REFERENCES segments (account_id, id),
  CONSTRAINT campaigns_folder_id_fkey FOREIGN KEY (account_id, folder_id)
    REFERENCES folders (account_id, id) ON DELETE SET NULL (folder_id),
  CONSTRAINT campaigns_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id) ON DELETE SET NULL (profile_id)
);
CREATE INDEX campaigns_created_at_idx ON campaigns (account_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
SELECT make_tenant_table('campaigns');

-- One row per recipient. The id is derived from campaign and contact, so creating the sends twice gives the same rows.
CREATE TABLE campaign_sends (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  status text NOT NULL DEFAULT 'pending' CONSTRAINT campaign_sends_status_check
    CHECK (status IN ('pending', 'sent', 'delivered', 'read', 'failed')),
  attempts integer NOT NULL DEFAULT 0,
  -- The worker that claimed the send and has not recorded its result yet.
  claimed_by uuid,
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
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_sends_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT campaign_sends_contact_id_unique UNIQUE (account_id, campaign_id, contact_id),
  CONSTRAINT campaign_sends_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE,
  CONSTRAINT campaign_sends_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id)
) WITH (fillfactor = 80);
CREATE INDEX campaign_sends_due_idx ON campaign_sends (account_id, campaign_id, id)
  WHERE started_at IS NULL AND status = 'pending';
CREATE INDEX campaign_sends_open_idx ON campaign_sends (started_at)
  WHERE started_at IS NOT NULL AND status = 'pending';
CREATE INDEX campaign_sends_wa_message_id_idx ON campaign_sends (account_id, wa_message_id)
  WHERE wa_message_id IS NOT NULL;
SELECT make_tenant_table('campaign_sends');

-- Sends of a campaign by status. Written in the transaction of the sends that it counts.
CREATE TABLE campaign_counters (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  total bigint NOT NULL DEFAULT 0,
  pending bigint NOT NULL DEFAULT 0,
  sent bigint NOT NULL DEFAULT 0,
  delivered bigint NOT NULL DEFAULT 0,
  read bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  CONSTRAINT campaign_counters_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_counters_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
) WITH (fillfactor = 50);
SELECT make_tenant_table('campaign_counters');

-- The run queue. Small and never distributed, so that a worker can claim runs across accounts.
CREATE TABLE campaign_queue (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  trigger text NOT NULL CONSTRAINT campaign_queue_trigger_check CHECK (trigger IN ('execute', 'send')),
  user_id uuid NOT NULL,
  ip_address text,
  worker uuid,
  leased_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_queue_pkey PRIMARY KEY (account_id, campaign_id)
);
SELECT make_tenant_table('campaign_queue');
