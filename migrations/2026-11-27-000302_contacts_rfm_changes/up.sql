-- RFM scores: a calculation writes only the scores that differ, in batches.

-- The time of a calculation belongs to the account (`rfm_calculations`): stored per score, it rewrote every score.
ALTER TABLE contact_rfm DROP COLUMN calculated_at;

-- An audience reads the contacts of an RFM segment from the index alone.
DROP INDEX contact_rfm_segment_idx;
CREATE INDEX contact_rfm_segment_idx ON contact_rfm (account_id, segment, contact_id);

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
GRANT SELECT, INSERT, DELETE ON rfm_changes TO recado_tenant;

-- The sizes of RFM segments change with each batch.
GRANT UPDATE ON rfm_counts TO recado_tenant;
