-- The files of messages, and what messages with them have. `messages` changes; the tables are new.

ALTER TABLE messages
  -- Null in rows of the previous version: contact or reply, by the direction.
  ADD COLUMN origin text,
  ADD COLUMN caption text,
  -- What the contact pressed or filled in.
  ADD COLUMN interactive jsonb,
  -- The quoted message: its id here, if it is known, and WhatsApp's.
  ADD COLUMN context jsonb,
  ADD COLUMN media_ids uuid[],
  -- When the author revoked the message.
  ADD COLUMN deleted_at timestamptz;

-- Files of messages that WhatsApp stores until they are fetched, and uploads to send. No foreign key to messages, as in
-- that table, and none to accounts: it would lock that table together with messages.
CREATE TABLE message_media (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  -- The message with the file, and the number that received it. Null for an upload, and after the message was revoked.
  message_id uuid,
  conversation_id uuid,
  profile_id uuid,
  phone_number_id text,
  wa_media_id text,
  type text NOT NULL
    CONSTRAINT message_media_type_check CHECK (type IN ('image', 'video', 'audio', 'document', 'sticker')),
  -- As WhatsApp reports it.
  mime_type text,
  file_name text,
  -- In lower-case hex: as WhatsApp reports it, and of the stored bytes.
  expected_sha256 text,
  sha256 text,
  size bigint,
  -- The type of the stored bytes; null if it is unknown.
  content_type text,
  state text NOT NULL
    CONSTRAINT message_media_state_check CHECK (state IN ('pending', 'ready', 'failed', 'expired')),
  reason text,
  attempts smallint NOT NULL DEFAULT 0,
  mismatches smallint NOT NULL DEFAULT 0,
  -- When the file is fetched next, or the end of the lease; null unless pending.
  due_at timestamptz,
  -- Fencing token of the worker that fetches the file, and the key of its bytes.
  claim_id uuid,
  -- The key of the stored bytes; null unless ready.
  file_id uuid,
  lost_reported_at timestamptz,
  -- When the message was written, or the upload stored.
  written_at timestamptz NOT NULL,
  -- Until when the bytes are kept; null for those of messages.
  expires_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT message_media_pkey PRIMARY KEY (account_id, id)
);
CREATE INDEX message_media_message_id_idx ON message_media (account_id, message_id) WHERE message_id IS NOT NULL;
CREATE INDEX message_media_due_at_idx ON message_media (due_at) WHERE state = 'pending';
CREATE INDEX message_media_pending_idx ON message_media (phone_number_id, due_at) WHERE state = 'pending';
CREATE INDEX message_media_expires_at_idx ON message_media (expires_at) WHERE state = 'ready';
CREATE INDEX message_media_lost_idx ON message_media (account_id)
  WHERE state IN ('failed', 'expired') AND message_id IS NOT NULL AND lost_reported_at IS NULL;
CREATE INDEX message_media_lost_reported_at_idx ON message_media (account_id, lost_reported_at)
  WHERE lost_reported_at IS NOT NULL;
SELECT make_tenant_table('message_media');
SELECT set_storage('message_media', 'ledger');
GRANT SELECT, INSERT, UPDATE ON message_media TO recado_tenant;

-- Requests for files that WhatsApp answered with an error within the last hour, of all accounts.
CREATE TABLE whatsapp_media_failures (
  phone_number_id text NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  failed_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT whatsapp_media_failures_pkey PRIMARY KEY (phone_number_id, failed_at, id)
);
SELECT set_storage('whatsapp_media_failures', 'queue');
