ALTER TABLE message_templates
  DROP COLUMN correct_category,
  DROP COLUMN rejection_recommendation,
  DROP COLUMN message_send_ttl_seconds,
  DROP COLUMN limited_time_offer;
