-- The number of claims of a callback that did not apply it. After `MAX_CLAIMS` it is set aside: its `due_at` is
-- infinity.

ALTER TABLE whatsapp_callbacks ADD COLUMN claims integer NOT NULL DEFAULT 0;
