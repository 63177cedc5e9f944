-- The prices of messages, which the platform's administrators upload. They belong to no account: tenants read them when
-- a message gets its price, and mark a card as used.

CREATE TABLE rate_cards (
  id uuid NOT NULL CONSTRAINT rate_cards_pkey PRIMARY KEY,
  name text NOT NULL,
  -- The number of rows.
  row_count bigint NOT NULL,
  currencies text[] NOT NULL,
  -- The earliest date of the rows.
  effective_from date NOT NULL,
  -- When an amount was taken from the card first. Null: the card can be deleted.
  used_at timestamptz,
  created_at timestamptz NOT NULL
);
SELECT set_storage('rate_cards', 'entity');
ALTER TABLE rate_cards ENABLE ROW LEVEL SECURITY;
CREATE POLICY account_reads ON rate_cards FOR SELECT
  USING (nullif(current_setting('app.account_id', true), '')::uuid IS NOT NULL);
CREATE POLICY account_marks ON rate_cards FOR UPDATE
  USING (nullif(current_setting('app.account_id', true), '')::uuid IS NOT NULL);
GRANT SELECT (id, used_at, created_at), UPDATE (used_at) ON rate_cards TO recado_tenant;

CREATE TABLE rate_card_rows (
  card_id uuid NOT NULL CONSTRAINT rate_card_rows_card_id_fkey REFERENCES rate_cards (id) ON DELETE CASCADE,
  -- The position in the file.
  row_no integer NOT NULL,
  market text NOT NULL,
  -- The ISO codes of the market's countries.
  countries text[] NOT NULL,
  currency text NOT NULL,
  category text NOT NULL,
  rate numeric(10, 6) NOT NULL,
  effective_from date NOT NULL,
  -- The time zone in which `effective_from` begins, and the instant of that.
  zone text NOT NULL,
  effective_at timestamptz NOT NULL,
  free_per_number_month bigint,
  CONSTRAINT rate_card_rows_pkey PRIMARY KEY (card_id, row_no)
);
CREATE INDEX rate_card_rows_countries_idx ON rate_card_rows USING gin (countries);
SELECT set_storage('rate_card_rows', 'entity');
ALTER TABLE rate_card_rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY account_reads ON rate_card_rows FOR SELECT
  USING (nullif(current_setting('app.account_id', true), '')::uuid IS NOT NULL);
GRANT SELECT ON rate_card_rows TO recado_tenant;
