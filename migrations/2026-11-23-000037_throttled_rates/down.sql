ALTER TABLE number_paces
  DROP COLUMN throttled_rate,
  DROP COLUMN throttled_at;
