-- The values of a run beside the template's placeholders.

ALTER TABLE campaigns
  -- The location of the header: `{ latitude, longitude, name, address }`.
  ADD COLUMN header_location jsonb,
  -- When the template's limited-time offer ends.
  ADD COLUMN offer_expires_at timestamptz;
