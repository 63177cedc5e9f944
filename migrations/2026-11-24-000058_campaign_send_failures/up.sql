-- Consecutive failures of a send with one error code before its current attempt: they decide its next retry.
ALTER TABLE campaign_sends
  -- The error code of the failure before the current attempt; null if there was none or it had no code.
  ADD COLUMN earlier_error_code bigint,
  -- The number of consecutive failures that ended with that one.
  ADD COLUMN earlier_failures integer NOT NULL DEFAULT 0;
