ALTER TABLE campaigns DROP COLUMN scheduled_support_admin;
ALTER TABLE campaigns DROP COLUMN scheduled_by;
