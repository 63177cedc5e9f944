ALTER TABLE campaigns DROP COLUMN budget;
