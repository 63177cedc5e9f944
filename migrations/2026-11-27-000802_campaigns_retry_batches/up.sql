-- Retry batches: the request that starts a retry stores which failed sends it chose. A worker or the run resets them
-- batch by batch.

CREATE TABLE campaign_retry_batches (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Batches are ordered by contact id. Batch 0 searches the sends that an early end of the earlier run left untried.
  batch_no integer NOT NULL,
  -- The chosen sends; empty for the search.
  send_ids uuid[] NOT NULL,
  -- The contact after which the search goes on.
  searched_until uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_retry_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no),
  CONSTRAINT campaign_retry_batches_search_check CHECK ((batch_no = 0) = (searched_until IS NOT NULL)),
  CONSTRAINT campaign_retry_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- UUIDs do not compress.
ALTER TABLE campaign_retry_batches ALTER COLUMN send_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_retry_batches');
SELECT set_storage('campaign_retry_batches', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_retry_batches TO recado_tenant;
