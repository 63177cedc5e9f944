-- Connected WhatsApp numbers, and WhatsApp's callbacks as they were received.

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
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT whatsapp_profiles_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT whatsapp_profiles_phone_number_id_unique UNIQUE (account_id, phone_number_id)
);
SELECT make_tenant_table('whatsapp_profiles');

-- Directory: maps WhatsApp's ids in a callback to the accounts that it may concern. A tenant transaction inserts rows
-- but cannot read them. Rows of a removed number are harmless, because the account's own table is checked again.
CREATE TABLE whatsapp_numbers (
  phone_number_id text NOT NULL,
  account_id uuid NOT NULL,
  waba_id text NOT NULL,
  CONSTRAINT whatsapp_numbers_pkey PRIMARY KEY (phone_number_id, account_id, waba_id)
);
CREATE INDEX whatsapp_numbers_waba_id_idx ON whatsapp_numbers (waba_id);
GRANT INSERT ON whatsapp_numbers TO recado_tenant;

-- Internal: a callback is stored before WhatsApp receives the response, and deleted when its changes are applied.
CREATE TABLE whatsapp_callbacks (
  id uuid CONSTRAINT whatsapp_callbacks_pkey PRIMARY KEY,
  body bytea NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX whatsapp_callbacks_due_at_idx ON whatsapp_callbacks (due_at);
