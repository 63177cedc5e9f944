REVOKE UPDATE ON rfm_counts FROM recado_tenant;
DROP TABLE rfm_changes;
DROP INDEX contact_rfm_segment_idx;
CREATE INDEX contact_rfm_segment_idx ON contact_rfm (account_id, segment);
ALTER TABLE contact_rfm ADD COLUMN calculated_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE contact_rfm ALTER COLUMN calculated_at DROP DEFAULT;
