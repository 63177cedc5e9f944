-- Message templates.

CREATE TABLE message_templates (
  account_id uuid NOT NULL CONSTRAINT message_templates_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  category text NOT NULL,
  language text NOT NULL,
  template_type text NOT NULL,
  header_type text NOT NULL DEFAULT 'none',
  header_text text,
  header_media_url text,
  body_text text,
  footer_text text,
  buttons jsonb NOT NULL DEFAULT '[]',
  variables jsonb NOT NULL DEFAULT '[]',
  carousel_cards jsonb NOT NULL DEFAULT '[]',
  folder_id uuid,
  profile_id uuid,
  meta_template_id text,
  meta_status text NOT NULL DEFAULT 'draft' CONSTRAINT message_templates_meta_status_check
    CHECK (meta_status IN ('draft', 'pending', 'approved', 'rejected', 'paused', 'disabled')),
  rejection_reason text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  CONSTRAINT message_templates_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT message_templates_folder_id_fkey FOREIGN KEY (account_id, folder_id)
    REFERENCES folders (account_id, id) ON DELETE SET NULL (folder_id),
  CONSTRAINT message_templates_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id) ON DELETE SET NULL (profile_id)
);
CREATE UNIQUE INDEX message_templates_name_unique ON message_templates (account_id, name, language)
  WHERE deleted_at IS NULL;
CREATE INDEX message_templates_meta_template_id_idx ON message_templates (account_id, meta_template_id);
SELECT make_tenant_table('message_templates');
