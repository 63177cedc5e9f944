-- A worker counts again the segments of large accounts that were read lately.
ALTER TABLE segment_counts ADD COLUMN wanted_at timestamptz, ADD COLUMN leased_until timestamptz;
