-- A run whose remaining messages are all held: until when, and how many. `judged_settings_at`: the last change of the
-- settings by which its messages were judged; null before the first judgement.
ALTER TABLE campaign_queue ADD COLUMN waiting_until timestamptz, ADD COLUMN held bigint DEFAULT 0 NOT NULL,
  ADD COLUMN judged_settings_at timestamptz;
