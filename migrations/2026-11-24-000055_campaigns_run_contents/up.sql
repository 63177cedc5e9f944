-- What the messages of a campaign's run are made of, frozen when the run starts: edits of the template come too late.

CREATE TABLE campaign_run_contents (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- The domain's `RunContent`. It is written once, and never changed.
  content jsonb NOT NULL,
  -- The body of the template in it, which exports show.
  body_text text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_run_contents_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_run_contents_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('campaign_run_contents');
