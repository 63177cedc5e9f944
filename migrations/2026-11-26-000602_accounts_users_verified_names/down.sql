ALTER TABLE users DROP COLUMN name_is_verified;
