-- Until when the secret before the last rotation works. Null: the current secret.
ALTER TABLE api_key_hashes ADD COLUMN valid_until timestamptz;
