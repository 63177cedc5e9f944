ALTER TABLE webhook_endpoints DROP COLUMN version;
