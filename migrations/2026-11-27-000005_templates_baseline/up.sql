-- Message templates and their review by Meta.

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
  meta_status text NOT NULL DEFAULT 'draft'
    CONSTRAINT message_templates_meta_status_check
      CHECK (meta_status IN ('draft', 'pending', 'approved', 'rejected', 'paused', 'disabled')),
  rejection_reason text,
  -- WhatsApp's quality score.
  quality_score text,
  -- `positional` or `named`.
  parameter_format text NOT NULL DEFAULT 'positional',
  -- Values of the published `reasons`, for components of WhatsApp's template that no column stores.
  unsupported jsonb NOT NULL DEFAULT '[]',
  -- The category to which WhatsApp will move the template, and when: `{ to, at }`.
  category_change jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT message_templates_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT message_templates_folder_id_fkey FOREIGN KEY (account_id, folder_id) REFERENCES folders (account_id, id),
  CONSTRAINT message_templates_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id)
);
CREATE INDEX message_templates_folder_id_idx ON message_templates (account_id, folder_id) WHERE folder_id IS NOT NULL;
CREATE INDEX message_templates_meta_template_id_idx ON message_templates (account_id, meta_template_id);
CREATE UNIQUE INDEX message_templates_name_unique
  ON message_templates (account_id, name, language) WHERE deleted_at IS NULL;
-- Without this index, deleting a row that `profile_id` references scans the account's rows (foreign key check).
CREATE INDEX message_templates_profile_id_idx
  ON message_templates (account_id, profile_id) WHERE profile_id IS NOT NULL;
SELECT make_tenant_table('message_templates');
SELECT set_storage('message_templates', 'entity');
GRANT SELECT, INSERT, UPDATE ON message_templates TO recado_tenant;
