ALTER TABLE campaigns
  -- What happens if the scheduled start is late: `within` (seconds) and `else`. Null: the account's policy.
  ADD COLUMN late_policy jsonb,
  -- When the scheduled start was skipped, because it was too late.
  ADD COLUMN skipped_at timestamptz;
