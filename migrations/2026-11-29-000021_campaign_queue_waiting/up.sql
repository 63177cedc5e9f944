-- A run whose remaining messages are all held: until when, and how many. `checked_settings_at`: the last change of the
-- settings by which its messages were checked; null before the first check.
ALTER TABLE campaign_queue ADD COLUMN waiting_until timestamptz, ADD COLUMN held bigint DEFAULT 0 NOT NULL,
  ADD COLUMN checked_settings_at timestamptz;
