DROP INDEX CONCURRENTLY links_contact_id_idx;
