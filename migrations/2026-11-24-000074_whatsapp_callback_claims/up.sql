-- How often a callback was taken up without being applied. After so many times it is set aside: its due_at is infinity.

ALTER TABLE whatsapp_callbacks ADD COLUMN claims integer NOT NULL DEFAULT 0;
