-- WhatsApp's quality score of a template, and WhatsApp's ids of uploaded files.

ALTER TABLE message_templates ADD COLUMN quality_score text;

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

-- A review status from WhatsApp can pause the campaigns that are sending the template.
CREATE INDEX campaigns_template_id_idx ON campaigns (account_id, template_id) WHERE status = 'sending';
