ALTER TABLE phone_number_send_slots
  DROP COLUMN throttled_rate,
  DROP COLUMN throttled_at;
