-- Large audiences are frozen as lists of contacts; their sends are made while the first ones leave.

CREATE TABLE campaign_recipient_batches (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Parts are in the order of the contacts' ids, in which a run goes through them.
  batch_no integer NOT NULL,
  contact_ids uuid[] NOT NULL,
  -- The moment of the freeze: all sends of a campaign are made of one moment, whenever their rows are written.
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_recipient_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no),
  CONSTRAINT campaign_recipient_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- Ids do not compress.
ALTER TABLE campaign_recipient_batches ALTER COLUMN contact_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_recipient_batches');

-- So the counters of a campaign count messages of one moment, this one.
ALTER TABLE campaign_counters ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();
UPDATE campaign_counters n SET created_at = s.created_at
FROM (SELECT account_id, campaign_id, min(created_at) AS created_at FROM campaign_sends GROUP BY 1, 2) s
WHERE s.account_id = n.account_id AND s.campaign_id = n.campaign_id;

-- How many of a campaign's recipients are gone is asked with every page of its sends.
CREATE INDEX contacts_deleted_idx ON contacts (account_id, id) WHERE deleted_at IS NOT NULL;
