-- The category to which WhatsApp will move a template, and when: `{ to, at }`.

ALTER TABLE message_templates ADD COLUMN category_change jsonb;
