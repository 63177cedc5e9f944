ALTER TABLE segment_counts DROP COLUMN wanted_at, DROP COLUMN leased_until;
