-- How often in a row a send failed with one code, before it was tried again: its next retry depends on it.
ALTER TABLE campaign_sends
  -- The code of the failure before the present try; null also where it had none.
  ADD COLUMN earlier_error_code bigint,
  -- How many failures in a row ended with that one.
  ADD COLUMN earlier_failures integer NOT NULL DEFAULT 0;
