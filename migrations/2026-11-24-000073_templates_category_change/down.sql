ALTER TABLE message_templates DROP COLUMN category_change;
