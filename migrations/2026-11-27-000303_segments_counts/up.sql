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
GRANT SELECT, INSERT, UPDATE ON segment_counts TO recado_tenant;
