ALTER TABLE users DROP COLUMN sessions_valid_from;
