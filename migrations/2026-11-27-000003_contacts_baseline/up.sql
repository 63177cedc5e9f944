-- Contacts, tags, segments, RFM scores and folders.

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
  -- The time of the contact's last consent change: the latest change wins, so an older one that arrives later is
  -- ignored.
  consent_at timestamptz,
  -- The ad or post that led to the contact's first message.
  first_referral jsonb,
  -- The time at which that message was written: an older message may arrive later.
  first_referral_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- Optimistic locking: every statement that changes a field of PUT raises it by one.
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT contacts_pkey PRIMARY KEY (account_id, id)
);
-- Contacts of a period: an audience or a segment with `created_after` or `created_before` reads no other contacts.
CREATE INDEX contacts_created_at_idx ON contacts (account_id, created_at) WHERE deleted_at IS NULL;
-- Every page of a campaign's sends also counts its deleted recipients.
CREATE INDEX contacts_deleted_idx ON contacts (account_id, deleted_at) INCLUDE (id) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX contacts_phone_unique ON contacts (account_id, phone) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX contacts_wa_id_unique
  ON contacts (account_id, wa_id) WHERE wa_id IS NOT NULL AND deleted_at IS NULL;
CREATE UNIQUE INDEX contacts_wa_user_id_unique ON contacts (account_id, wa_user_id) WHERE deleted_at IS NULL;
SELECT make_tenant_table('contacts');
SELECT set_storage('contacts', 'entity');
GRANT SELECT, INSERT, UPDATE ON contacts TO recado_tenant;

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
SELECT set_storage('tags', 'entity');
GRANT SELECT, INSERT, DELETE ON tags TO recado_tenant;

CREATE TABLE contact_tags (
  account_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  tag_id uuid NOT NULL,
  CONSTRAINT contact_tags_pkey PRIMARY KEY (account_id, contact_id, tag_id),
  CONSTRAINT contact_tags_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT contact_tags_tag_id_fkey FOREIGN KEY (account_id, tag_id)
    REFERENCES tags (account_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_tags_tag_id_idx ON contact_tags (account_id, tag_id, contact_id);
SELECT make_tenant_table('contact_tags');
SELECT set_storage('contact_tags', 'entity');
GRANT SELECT, INSERT, DELETE ON contact_tags TO recado_tenant;

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
SELECT set_storage('segments', 'entity');
GRANT SELECT, INSERT, UPDATE ON segments TO recado_tenant;

CREATE TABLE segment_members (
  account_id uuid NOT NULL,
  segment_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  CONSTRAINT segment_members_pkey PRIMARY KEY (account_id, segment_id, contact_id),
  CONSTRAINT segment_members_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT segment_members_segment_id_fkey FOREIGN KEY (account_id, segment_id)
    REFERENCES segments (account_id, id) ON DELETE CASCADE
);
-- Deleting a contact deletes its segment memberships.
CREATE INDEX segment_members_contact_id_idx ON segment_members (account_id, contact_id);
SELECT make_tenant_table('segment_members');
SELECT set_storage('segment_members', 'entity');
GRANT SELECT, INSERT, DELETE ON segment_members TO recado_tenant;

-- The number of contacts of each segment of a large account, as of `counted_at`. Small accounts are counted when they
-- are read.
CREATE TABLE segment_counts (
  account_id uuid NOT NULL,
  segment_id uuid NOT NULL,
  contacts bigint NOT NULL,
  counted_at timestamptz NOT NULL,
  -- Increased by every change of members or filters: a count that began before the change is not stored.
  changes bigint NOT NULL DEFAULT 0,
  CONSTRAINT segment_counts_pkey PRIMARY KEY (account_id, segment_id),
  CONSTRAINT segment_counts_segment_id_fkey FOREIGN KEY (account_id, segment_id)
    REFERENCES segments (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('segment_counts');
SELECT set_storage('segment_counts', 'counter');
GRANT SELECT, INSERT, UPDATE ON segment_counts TO recado_tenant;

CREATE TABLE contact_rfm (
  account_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  recency_score smallint NOT NULL,
  frequency_score smallint NOT NULL,
  monetary_score smallint NOT NULL,
  segment text NOT NULL,
  CONSTRAINT contact_rfm_pkey PRIMARY KEY (account_id, contact_id),
  CONSTRAINT contact_rfm_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_rfm_segment_idx ON contact_rfm (account_id, segment, contact_id);
SELECT make_tenant_table('contact_rfm');
SELECT set_storage('contact_rfm', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON contact_rfm TO recado_tenant;

-- The schedule of RFM calculations: next due time, lease of the worker, and time of the last calculation.
CREATE TABLE rfm_calculations (
  account_id uuid CONSTRAINT rfm_calculations_pkey PRIMARY KEY
    CONSTRAINT rfm_calculations_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  due_at timestamptz NOT NULL,
  worker uuid,
  leased_until timestamptz,
  calculated_at timestamptz
);
CREATE INDEX rfm_calculations_due_at_idx ON rfm_calculations (due_at);
SELECT make_tenant_table('rfm_calculations');
SELECT set_storage('rfm_calculations', 'entity');
GRANT SELECT, INSERT, UPDATE ON rfm_calculations TO recado_tenant;

-- Contacts by RFM segment. Written with their scores.
CREATE TABLE rfm_counts (
  account_id uuid NOT NULL CONSTRAINT rfm_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  segment text NOT NULL,
  contacts bigint NOT NULL,
  CONSTRAINT rfm_counts_pkey PRIMARY KEY (account_id, segment)
);
SELECT make_tenant_table('rfm_counts');
SELECT set_storage('rfm_counts', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON rfm_counts TO recado_tenant;

-- The scores that a running calculation has yet to write, per claim (`worker`), so that a worker that lost its claim
-- writes none of another worker's. No foreign key: the rows live for minutes, and a score that is written has one.
CREATE TABLE rfm_changes (
  account_id uuid NOT NULL,
  worker uuid NOT NULL,
  contact_id uuid NOT NULL,
  -- Null, like the scores: the contact has no scores any more.
  segment text,
  recency_score smallint,
  frequency_score smallint,
  monetary_score smallint,
  CONSTRAINT rfm_changes_pkey PRIMARY KEY (account_id, worker, contact_id)
);
SELECT make_tenant_table('rfm_changes');
SELECT set_storage('rfm_changes', 'queue');
GRANT SELECT, INSERT, DELETE ON rfm_changes TO recado_tenant;

-- Contacts that are not deleted, by the UTC day of their creation.
CREATE TABLE contact_counts (
  account_id uuid NOT NULL CONSTRAINT contact_counts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  day date NOT NULL,
  contacts bigint NOT NULL,
  CONSTRAINT contact_counts_pkey PRIMARY KEY (account_id, day)
);
SELECT make_tenant_table('contact_counts');
SELECT set_storage('contact_counts', 'counter');
GRANT SELECT, INSERT, UPDATE ON contact_counts TO recado_tenant;

CREATE TABLE folders (
  account_id uuid NOT NULL CONSTRAINT folders_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  kind text NOT NULL CONSTRAINT folders_kind_check CHECK (kind IN ('campaign', 'template')),
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT folders_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('folders');
SELECT set_storage('folders', 'entity');
GRANT SELECT, INSERT, DELETE ON folders TO recado_tenant;
-- FOR UPDATE requires the right to update a column.
GRANT UPDATE (name) ON folders TO recado_tenant;
