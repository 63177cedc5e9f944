-- Messages to one person by one call, and the queues of their numbers.

CREATE TABLE direct_messages (
  account_id uuid NOT NULL CONSTRAINT direct_messages_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  contact_id uuid NOT NULL,
  -- The sending number, or zeros for a simulated message. No foreign key: a message keeps the number that it was made
  -- for after that number was disconnected.
  profile_id uuid NOT NULL,
  kind text NOT NULL
    CONSTRAINT direct_messages_kind_check CHECK (kind IN ('template', 'text', 'media', 'interactive')),
  template_id uuid,
  -- What the caller asked for, in the form by which a repeated request is recognized.
  request jsonb NOT NULL,
  client_reference text,
  status text NOT NULL DEFAULT 'pending'
    CONSTRAINT direct_messages_status_check
      CHECK (status IN ('pending', 'sent', 'delivered', 'read', 'failed', 'cancelled')),
  -- Attempts that ended before the message could leave.
  attempts integer NOT NULL DEFAULT 0,
  send_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  -- When the message is tried next. Null: it was started, or it has ended.
  due_at timestamptz,
  -- When WhatsApp was called. Null again if the message certainly did not leave.
  started_at timestamptz,
  -- Since when the outcome of the call is unknown.
  unknown_at timestamptz,
  hold_reason text CONSTRAINT direct_messages_hold_reason_check CHECK (hold_reason IN ('throttled')),
  sent_at timestamptz,
  wa_message_id text,
  error_code bigint,
  error_message text,
  -- As in `campaign_sends.pricing`.
  pricing jsonb,
  -- The conversation that shows the message.
  conversation_id uuid,
  -- The month whose quota holds the reservation of the message. Null: it holds none, or none any more.
  quota_month date,
  created_by uuid NOT NULL,
  api_key_id uuid,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CONSTRAINT direct_messages_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT direct_messages_client_reference_unique UNIQUE (account_id, client_reference),
  CONSTRAINT direct_messages_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id),
  CONSTRAINT direct_messages_template_id_fkey FOREIGN KEY (account_id, template_id)
    REFERENCES message_templates (account_id, id),
  CONSTRAINT direct_messages_conversation_id_fkey FOREIGN KEY (account_id, conversation_id)
    REFERENCES conversations (account_id, id)
);
CREATE INDEX direct_messages_contact_id_idx ON direct_messages (account_id, contact_id, created_at DESC, id DESC);
CREATE INDEX direct_messages_conversation_id_idx
  ON direct_messages (account_id, conversation_id, send_at DESC, id DESC) WHERE conversation_id IS NOT NULL;
CREATE INDEX direct_messages_created_at_idx ON direct_messages (account_id, created_at DESC, id DESC);
CREATE INDEX direct_messages_due_idx ON direct_messages (account_id, profile_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX direct_messages_started_idx ON direct_messages (account_id, profile_id)
  WHERE status = 'pending' AND started_at IS NOT NULL;
CREATE INDEX direct_messages_started_at_idx ON direct_messages (started_at)
  WHERE status = 'pending' AND started_at IS NOT NULL;
CREATE INDEX direct_messages_status_idx ON direct_messages (account_id, status, created_at DESC, id DESC);
CREATE INDEX direct_messages_template_id_idx
  ON direct_messages (account_id, template_id, created_at DESC, id DESC) WHERE template_id IS NOT NULL;
CREATE INDEX direct_messages_wa_message_id_idx ON direct_messages (account_id, wa_message_id)
  WHERE wa_message_id IS NOT NULL;
SELECT make_tenant_table('direct_messages');
SELECT set_storage('direct_messages', 'ledger');
GRANT SELECT, INSERT, UPDATE ON direct_messages TO recado_tenant;

-- The numbers with direct messages that are not started. Small, so that a worker can claim a queue across accounts.
CREATE TABLE direct_message_queues (
  account_id uuid NOT NULL
    CONSTRAINT direct_message_queues_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  -- As in `direct_messages`.
  profile_id uuid NOT NULL,
  -- When the first message is due.
  due_at timestamptz NOT NULL,
  waiting_since timestamptz NOT NULL DEFAULT now(),
  -- What keeps all messages of the number back.
  hold_reason text
    CONSTRAINT direct_message_queues_hold_reason_check CHECK (hold_reason IN ('number', 'suspended')),
  worker uuid,
  leased_until timestamptz,
  CONSTRAINT direct_message_queues_pkey PRIMARY KEY (account_id, profile_id)
);
CREATE INDEX direct_message_queues_due_idx ON direct_message_queues (due_at);
SELECT make_tenant_table('direct_message_queues');
SELECT set_storage('direct_message_queues', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON direct_message_queues TO recado_tenant;
