ALTER TABLE phone_number_send_slots
  -- The send rate in messages per second after WhatsApp last throttled the number, and the time of that. The rate
  -- recovers from then on. Null: WhatsApp never throttled the number.
  ADD COLUMN throttled_rate double precision,
  ADD COLUMN throttled_at timestamptz;
