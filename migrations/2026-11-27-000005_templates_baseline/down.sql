DROP TABLE message_templates;
