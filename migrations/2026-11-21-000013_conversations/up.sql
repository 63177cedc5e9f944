-- What contacts and accounts write to each other, and notifications as a stream.

-- When they last said whether they want messages: an older wish that comes later changes nothing.
ALTER TABLE contacts ADD COLUMN consent_at timestamptz;
CREATE INDEX contacts_wa_id_idx ON contacts (account_id, wa_id) WHERE wa_id IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE conversations (
  account_id uuid NOT NULL CONSTRAINT conversations_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  contact_id uuid NOT NULL,
  -- The number that the latest inbound message came to; null when it was removed.
  profile_id uuid,
  status text NOT NULL DEFAULT 'open' CONSTRAINT conversations_status_check CHECK (status IN ('open', 'closed')),
  -- By the clock of whoever wrote the message.
  last_message_at timestamptz NOT NULL,
  last_inbound_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT conversations_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT conversations_contact_id_unique UNIQUE (account_id, contact_id),
  CONSTRAINT conversations_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT conversations_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id) ON DELETE SET NULL (profile_id)
);
CREATE INDEX conversations_last_message_at_idx ON conversations (account_id, last_message_at DESC, id DESC);
CREATE INDEX conversations_status_idx ON conversations (account_id, status, last_message_at DESC, id DESC);
CREATE INDEX conversations_profile_id_idx ON conversations (account_id, profile_id) WHERE profile_id IS NOT NULL;
SELECT make_tenant_table('conversations');

-- Inbound messages and replies. Messages of campaigns are rows of campaign_sends.
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
  -- Ids of media, a location, what it answers.
  payload jsonb NOT NULL DEFAULT '{}',
  error_message text,
  -- When it was written, and when it was stored here.
  created_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT messages_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT messages_wa_message_id_unique UNIQUE (account_id, wa_message_id),
  CONSTRAINT messages_conversation_id_fkey FOREIGN KEY (account_id, conversation_id)
    REFERENCES conversations (account_id, id) ON DELETE CASCADE
);
CREATE INDEX messages_created_at_idx ON messages (account_id, conversation_id, created_at DESC, id DESC);
CREATE INDEX messages_pending_idx ON messages (recorded_at) WHERE status = 'pending';
SELECT make_tenant_table('messages');

-- The order in which notifications became visible: whoever writes one holds a lock meanwhile, so that a stream that saw
-- a place has seen every smaller one.
ALTER TABLE notifications ADD COLUMN place bigint GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX notifications_place_unique ON notifications (account_id, place);
CREATE INDEX notifications_place_idx ON notifications (place);
CREATE INDEX notifications_unread_idx ON notifications (account_id, id) WHERE read_at IS NULL;
