ALTER TABLE campaign_sends
  DROP COLUMN earlier_error_code,
  DROP COLUMN earlier_failures;
