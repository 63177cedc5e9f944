-- Contacts, tags, segments, RFM segments and folders.

CREATE TABLE contacts (
  account_id uuid NOT NULL CONSTRAINT contacts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  phone text,
  email text,
  wa_id text,
  wa_user_id text,
  attributes jsonb NOT NULL DEFAULT '{}',
  opted_out_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  CONSTRAINT contacts_pkey PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX contacts_phone_unique ON contacts (account_id, phone) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX contacts_wa_user_id_unique ON contacts (account_id, wa_user_id) WHERE deleted_at IS NULL;
SELECT make_tenant_table('contacts');

CREATE TABLE tags (
  account_id uuid NOT NULL CONSTRAINT tags_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  color text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT tags_pkey PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX tags_name_unique ON tags (account_id, lower(name));
SELECT make_tenant_table('tags');

CREATE TABLE contact_tags (
  account_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  tag_id uuid NOT NULL,
  CONSTRAINT contact_tags_pkey PRIMARY KEY (account_id, contact_id, tag_id),
  CONSTRAINT contact_tags_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT contact_tags_tag_id_fkey FOREIGN KEY (account_id, tag_id) REFERENCES tags (account_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_tags_tag_id_idx ON contact_tags (account_id, tag_id, contact_id);
SELECT make_tenant_table('contact_tags');

CREATE TABLE segments (
  account_id uuid NOT NULL CONSTRAINT segments_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  description text,
  filters jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  CONSTRAINT segments_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('segments');

CREATE TABLE segment_members (
  account_id uuid NOT NULL,
  segment_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  CONSTRAINT segment_members_pkey PRIMARY KEY (account_id, segment_id, contact_id),
  CONSTRAINT segment_members_segment_id_fkey FOREIGN KEY (account_id, segment_id)
    REFERENCES segments (account_id, id) ON DELETE CASCADE,
  CONSTRAINT segment_members_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('segment_members');

CREATE TABLE contact_rfm (
  account_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  recency_score smallint NOT NULL,
  frequency_score smallint NOT NULL,
  monetary_score smallint NOT NULL,
  segment text NOT NULL,
  calculated_at timestamptz NOT NULL,
  CONSTRAINT contact_rfm_pkey PRIMARY KEY (account_id, contact_id),
  CONSTRAINT contact_rfm_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_rfm_segment_idx ON contact_rfm (account_id, segment);
SELECT make_tenant_table('contact_rfm');

CREATE TABLE folders (
  account_id uuid NOT NULL CONSTRAINT folders_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  kind text NOT NULL CONSTRAINT folders_kind_check CHECK (kind IN ('campaign', 'template')),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT folders_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('folders');
