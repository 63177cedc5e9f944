ALTER TABLE api_key_hashes DROP COLUMN valid_until;
