-- Connected WhatsApp numbers, WhatsApp's callbacks, uploaded files and send rates.

CREATE TABLE whatsapp_profiles (
  account_id uuid NOT NULL CONSTRAINT whatsapp_profiles_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  phone_number_id text NOT NULL,
  waba_id text NOT NULL,
  -- Sealed with the server's key.
  access_token bytea NOT NULL,
  messages_per_second integer
    CONSTRAINT whatsapp_profiles_messages_per_second_check CHECK (messages_per_second BETWEEN 1 AND 1000),
  -- Whether WhatsApp has confirmed that the profile's number belongs to the owner of its token.
  verification_state text NOT NULL DEFAULT 'pending'
    CONSTRAINT whatsapp_profiles_verification_state_check
      CHECK (verification_state IN ('pending', 'verified', 'failed')),
  -- The checks as the API shows them.
  checks jsonb NOT NULL DEFAULT '[]',
  checked_at timestamptz,
  -- When the worker checks next. Null: never by itself.
  next_check_at timestamptz DEFAULT now(),
  -- Until then a worker is checking.
  check_leased_until timestamptz,
  pending_since timestamptz DEFAULT now(),
  failed_since timestamptz,
  -- A failure of a verified profile that a second check has not confirmed yet.
  suspected_check text,
  suspected_since timestamptz,
  -- Inbound messages since then are held for the profile. Kept by a verified profile until it has received them.
  held_since timestamptz DEFAULT now(),
  -- Grows with each change of phone_number_id, waba_id or access_token: a check with earlier ones records nothing.
  credentials_version bigint NOT NULL DEFAULT 1,
  -- Optimistic locking of the verification and of the number.
  verification_version bigint NOT NULL DEFAULT 1,
  -- WhatsApp's values of the number, as the API shows them.
  number jsonb NOT NULL DEFAULT '{}',
  -- WhatsApp's last answer about the number's health.
  health jsonb,
  health_asked_at timestamptz,
  last_inbound_at timestamptz,
  last_callback_at timestamptz,
  last_accepted_at timestamptz,
  -- The service messages that WhatsApp accepted in the month.
  service_month date,
  service_messages bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT whatsapp_profiles_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT whatsapp_profiles_phone_number_id_unique UNIQUE (account_id, phone_number_id)
);
-- The profiles that still wait for held messages. Few: a profile waits only for a moment after it was verified.
CREATE INDEX whatsapp_profiles_held_since_idx
  ON whatsapp_profiles (held_since) WHERE held_since IS NOT NULL AND verification_state = 'verified';
-- The profiles whose check is due.
CREATE INDEX whatsapp_profiles_next_check_at_idx ON whatsapp_profiles (next_check_at) WHERE next_check_at IS NOT NULL;
SELECT make_tenant_table('whatsapp_profiles');
SELECT set_storage('whatsapp_profiles', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON whatsapp_profiles TO recado_tenant;

-- Directory: maps WhatsApp's ids in a callback to the accounts that it may concern. A tenant transaction inserts rows
-- but cannot read them. Rows of a removed number are harmless, because the account's own table is checked again.
CREATE TABLE whatsapp_numbers (
  phone_number_id text NOT NULL,
  account_id uuid NOT NULL,
  waba_id text NOT NULL,
  CONSTRAINT whatsapp_numbers_pkey PRIMARY KEY (phone_number_id, account_id, waba_id)
);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX whatsapp_numbers_account_id_idx ON whatsapp_numbers (account_id);
CREATE INDEX whatsapp_numbers_waba_id_idx ON whatsapp_numbers (waba_id);
SELECT make_tenant_table('whatsapp_numbers');
SELECT set_storage('whatsapp_numbers', 'entity');
GRANT INSERT ON whatsapp_numbers TO recado_tenant;

-- Internal: a callback is stored before WhatsApp receives the response, and deleted when its changes are applied.
CREATE TABLE whatsapp_callbacks (
  id uuid CONSTRAINT whatsapp_callbacks_pkey PRIMARY KEY,
  body bytea NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now(),
  -- The number of claims that did not apply the callback. After `MAX_CLAIMS` it is set aside: its `due_at` is
  -- infinity.
  claims integer NOT NULL DEFAULT 0
);
CREATE INDEX whatsapp_callbacks_due_at_idx ON whatsapp_callbacks (due_at, id);
SELECT set_storage('whatsapp_callbacks', 'queue');

-- Inbound events of numbers that some profile has without being verified. They belong to no account until a verified
-- profile takes them, so only the owner role reads them. Removed after seven days.
CREATE TABLE whatsapp_held_messages (
  phone_number_id text NOT NULL,
  -- A hash of the number and of WhatsApp's message id: a number holds each message once.
  key bytea NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  -- Sealed with the server's key.
  event bytea NOT NULL,
  -- Whether a verified profile has received it.
  given boolean NOT NULL DEFAULT false,
  received_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT whatsapp_held_messages_pkey PRIMARY KEY (key, phone_number_id)
);
CREATE INDEX whatsapp_held_messages_received_at_idx ON whatsapp_held_messages (received_at);
CREATE INDEX whatsapp_held_messages_seq_idx ON whatsapp_held_messages (phone_number_id, seq);
SELECT set_storage('whatsapp_held_messages', 'queue');

-- WhatsApp's id of a file, by the number to which it was uploaded and its path in the media store. WhatsApp deletes
-- files after a month, so `expires_at` ends the use of the id.
CREATE TABLE whatsapp_files (
  account_id uuid NOT NULL CONSTRAINT whatsapp_files_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  phone_number_id text NOT NULL,
  path text NOT NULL,
  file_id text NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT whatsapp_files_pkey PRIMARY KEY (account_id, phone_number_id, path)
);
SELECT make_tenant_table('whatsapp_files');
SELECT set_storage('whatsapp_files', 'entity');
GRANT SELECT, INSERT, UPDATE ON whatsapp_files TO recado_tenant;

-- Directory: the next free send slot of each number. Several accounts may share a number. A crash loses at most a
-- fraction of a second of it, so the table is UNLOGGED.
CREATE UNLOGGED TABLE phone_number_send_slots (
  phone_number_id text CONSTRAINT phone_number_send_slots_pkey PRIMARY KEY,
  next_slot_at timestamptz NOT NULL,
  -- The send rate in messages per second after WhatsApp last throttled the number, and the time of that. The rate
  -- recovers from then on. Null: WhatsApp never throttled the number.
  throttled_rate double precision,
  throttled_at timestamptz
);
SELECT set_storage('phone_number_send_slots', 'counter');
