-- Internal: how far each partitioned table was removed by its retention. Rows before `kept_from` are gone, so a sum that
-- counted them is no longer compared with its rows.
CREATE TABLE partition_horizons (
  table_name text CONSTRAINT partition_horizons_pkey PRIMARY KEY,
  kept_from timestamptz NOT NULL
);
