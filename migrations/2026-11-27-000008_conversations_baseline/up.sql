-- Conversations and the messages outside campaigns.

CREATE TABLE conversations (
  account_id uuid NOT NULL CONSTRAINT conversations_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  contact_id uuid NOT NULL,
  -- The WhatsApp number that received the latest inbound message; null after that number was removed.
  profile_id uuid,
  status text NOT NULL DEFAULT 'open' CONSTRAINT conversations_status_check CHECK (status IN ('open', 'closed')),
  -- By the clock of the message's sender.
  last_message_at timestamptz NOT NULL,
  last_inbound_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT conversations_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT conversations_contact_id_unique UNIQUE (account_id, contact_id),
  CONSTRAINT conversations_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT conversations_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id)
);
CREATE INDEX conversations_last_message_at_idx ON conversations (account_id, last_message_at DESC, id DESC);
CREATE INDEX conversations_profile_id_idx ON conversations (account_id, profile_id) WHERE profile_id IS NOT NULL;
CREATE INDEX conversations_status_idx ON conversations (account_id, status, last_message_at DESC, id DESC);
SELECT make_tenant_table('conversations');
SELECT set_storage('conversations', 'entity');
GRANT SELECT, INSERT, UPDATE ON conversations TO recado_tenant;

-- Inbound messages and replies. Messages of campaigns are rows of campaign_sends. No foreign key to conversations: it
-- would lock that table while a month is dropped. Every writer of a message has locked or inserted its conversation.
CREATE TABLE messages (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  conversation_id uuid NOT NULL,
  direction text NOT NULL CONSTRAINT messages_direction_check CHECK (direction IN ('inbound', 'outbound')),
  type text NOT NULL,
  text text,
  status text NOT NULL
    CONSTRAINT messages_status_check CHECK (status IN ('received', 'pending', 'sent', 'delivered', 'read', 'failed')),
  wa_message_id text,
  -- Media ids, a location, the id of the message that it replies to.
  payload jsonb NOT NULL DEFAULT '{}',
  error_message text,
  -- When the message was stored here.
  recorded_at timestamptz NOT NULL DEFAULT now(),
  -- The ad or post that led to the message.
  referral jsonb,
  -- As in `campaign_sends.pricing`.
  pricing jsonb,
  -- When the message was written, by its sender's clock.
  created_at timestamptz NOT NULL,
  CONSTRAINT messages_pkey PRIMARY KEY (account_id, id, created_at),
  CONSTRAINT messages_wa_message_id_unique UNIQUE (account_id, wa_message_id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX messages_created_at_idx ON messages (account_id, conversation_id, created_at DESC, id DESC);
CREATE INDEX messages_pending_idx ON messages (recorded_at) WHERE status = 'pending';
CREATE INDEX messages_written_idx ON messages (account_id, created_at DESC, id DESC);
SELECT make_tenant_table('messages');
GRANT SELECT, INSERT, UPDATE ON messages TO recado_tenant;

-- Conversations with contacts that are not deleted.
CREATE TABLE conversation_counts (
  account_id uuid NOT NULL CONSTRAINT conversation_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  status text NOT NULL CONSTRAINT conversation_counts_status_check CHECK (status IN ('open', 'closed')),
  conversations bigint NOT NULL,
  CONSTRAINT conversation_counts_pkey PRIMARY KEY (account_id, status)
);
SELECT make_tenant_table('conversation_counts');
SELECT set_storage('conversation_counts', 'counter');
GRANT SELECT, INSERT, UPDATE ON conversation_counts TO recado_tenant;

-- Replies by status, and inbound messages, by the time at which a message was written. Sums of a quarter of an hour
-- (15 `bucket_minutes`), of three hours (180) and of a UTC day (1440).
CREATE TABLE message_rollups (
  account_id uuid NOT NULL CONSTRAINT message_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_start timestamptz NOT NULL,
  bucket_minutes smallint NOT NULL
    CONSTRAINT message_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440)),
  sent integer NOT NULL DEFAULT 0,
  delivered integer NOT NULL DEFAULT 0,
  read integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  received integer NOT NULL DEFAULT 0,
  CONSTRAINT message_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start)
);
SELECT make_tenant_table('message_rollups');
SELECT set_storage('message_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON message_rollups TO recado_tenant;
