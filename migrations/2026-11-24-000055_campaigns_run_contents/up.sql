-- Run content: template and mapping, frozen when the run starts. Later edits of the template do not affect the run.

CREATE TABLE campaign_run_contents (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- The domain's `RunContent`. Written once and never updated.
  content jsonb NOT NULL,
  -- The template's body text, for exports.
  body_text text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_run_contents_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_run_contents_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('campaign_run_contents');
