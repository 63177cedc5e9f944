ALTER TABLE accounts DROP COLUMN granted_plan;
