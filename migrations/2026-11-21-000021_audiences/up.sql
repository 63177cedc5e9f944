-- Recipient batches: a large audience is frozen as arrays of contact ids. Its send rows are created while the first
-- messages are being sent.

CREATE TABLE campaign_recipient_batches (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Batches are ordered by contact id, the order in which a run sends.
  batch_no integer NOT NULL,
  contact_ids uuid[] NOT NULL,
  -- The time of the freeze: all sends of a campaign get this time, whenever their rows are created.
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_recipient_batches_pkey PRIMARY KEY (account_id, campaign_id, batch_no),
  CONSTRAINT campaign_recipient_batches_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- UUIDs do not compress.
ALTER TABLE campaign_recipient_batches ALTER COLUMN contact_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_recipient_batches');

-- All messages of a campaign have one time, and its counters carry the same.
ALTER TABLE campaign_counters ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();
UPDATE campaign_counters n SET created_at = s.created_at
FROM (SELECT account_id, campaign_id, min(created_at) AS created_at FROM campaign_sends GROUP BY 1, 2) s
WHERE s.account_id = n.account_id AND s.campaign_id = n.campaign_id;

-- Every page of a campaign's sends also counts its deleted recipients.
CREATE INDEX contacts_deleted_idx ON contacts (account_id, id) WHERE deleted_at IS NOT NULL;
