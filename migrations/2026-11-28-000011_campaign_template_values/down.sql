ALTER TABLE campaigns
  DROP COLUMN offer_expires_at,
  DROP COLUMN header_location;
