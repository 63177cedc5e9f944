-- Connected numbers, and the platform's callbacks as they were received.

CREATE TABLE whatsapp_profiles (
  account_id uuid NOT NULL CONSTRAINT whatsapp_profiles_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  phone_number_id text NOT NULL,
  waba_id text NOT NULL,
  -- Encrypted with the server's key.
  access_token bytea NOT NULL,
  messages_per_second integer
    CONSTRAINT whatsapp_profiles_messages_per_second_check CHECK (messages_per_second BETWEEN 1 AND 1000),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT whatsapp_profiles_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT whatsapp_profiles_phone_number_id_unique UNIQUE (account_id, phone_number_id)
);
SELECT make_tenant_table('whatsapp_profiles');

-- Directory: from the platform's ids in a callback to the accounts it may concern. A tenant's transaction adds to it
-- and cannot read it; what is left of a removed number is harmless, since the account is asked again.
CREATE TABLE whatsapp_numbers (
  phone_number_id text NOT NULL,
  account_id uuid NOT NULL,
  waba_id text NOT NULL,
  CONSTRAINT whatsapp_numbers_pkey PRIMARY KEY (phone_number_id, account_id, waba_id)
);
CREATE INDEX whatsapp_numbers_waba_id_idx ON whatsapp_numbers (waba_id);
GRANT INSERT ON whatsapp_numbers TO recado_tenant;

-- The system's own: kept from before the platform is answered until the news in it is applied.
CREATE TABLE whatsapp_callbacks (
  id uuid CONSTRAINT whatsapp_callbacks_pkey PRIMARY KEY,
  body bytea NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- Not to be taken before this moment: leased, or waiting for a retry.
  due_at timestamptz NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX whatsapp_callbacks_due_at_idx ON whatsapp_callbacks (due_at);
