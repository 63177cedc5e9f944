-- The account's brand context.

-- Entered by a member, or read from the account's website.
CREATE TABLE brand_contexts (
  account_id uuid CONSTRAINT brand_contexts_pkey PRIMARY KEY
    CONSTRAINT brand_contexts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  company_name text,
  description text,
  products_services text,
  tone_of_voice text,
  target_audience text,
  brand_values text,
  website_url text,
  -- The result of the last scrape, and the user who requested it.
  raw_scrape_data jsonb,
  last_scraped_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
SELECT make_tenant_table('brand_contexts');
SELECT set_storage('brand_contexts', 'entity');
GRANT SELECT, INSERT, UPDATE ON brand_contexts TO recado_tenant;
