ALTER TABLE message_templates DROP COLUMN parameter_format, DROP COLUMN unsupported;
