ALTER TABLE messages DROP COLUMN pricing;
