-- The category that WhatsApp is about to put a template into, and when: { to, at }.

ALTER TABLE message_templates ADD COLUMN category_change jsonb;
