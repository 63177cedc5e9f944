ALTER TABLE phone_number_send_slots
  -- The rate in messages per second after the last time that WhatsApp throttled the number, and when that was. The rate
  -- recovers from then on. Null: never.
  ADD COLUMN throttled_rate double precision,
  ADD COLUMN throttled_at timestamptz;
