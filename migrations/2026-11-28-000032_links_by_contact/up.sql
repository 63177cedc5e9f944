CREATE INDEX CONCURRENTLY links_contact_id_idx ON links (account_id, contact_id) WHERE contact_id IS NOT NULL;
