ALTER TABLE message_templates DROP COLUMN version;
