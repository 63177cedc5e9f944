-- Large audiences are frozen as lists of contacts; their sends are made while the first ones leave.

CREATE TABLE campaign_audiences (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- Parts are in the order of the contacts' ids, in which a run goes through them.
  part integer NOT NULL,
  contact_ids uuid[] NOT NULL,
  CONSTRAINT campaign_audiences_pkey PRIMARY KEY (account_id, campaign_id, part),
  CONSTRAINT campaign_audiences_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
-- Ids do not compress.
ALTER TABLE campaign_audiences ALTER COLUMN contact_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_audiences');
