-- What the platform thinks of a template's quality, and what it calls the files it was given.

ALTER TABLE message_templates ADD COLUMN quality_score text;

-- The platform's id of a file, by the number it was given to and by where the file lies in the store. It forgets files
-- after a month, so an id is not used for longer.
CREATE TABLE whatsapp_files (
  account_id uuid NOT NULL CONSTRAINT whatsapp_files_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  phone_number_id text NOT NULL,
  path text NOT NULL,
  file_id text NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT whatsapp_files_pkey PRIMARY KEY (account_id, phone_number_id, path)
);
SELECT make_tenant_table('whatsapp_files');

-- A verdict of the platform pauses the campaigns that are sending the template.
CREATE INDEX campaigns_template_id_idx ON campaigns (account_id, template_id) WHERE status = 'sending';
