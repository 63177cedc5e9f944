DROP TABLE api_key_hashes;
DROP TABLE api_keys;
