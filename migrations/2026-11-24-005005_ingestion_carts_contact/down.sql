DROP INDEX CONCURRENTLY carts_contact_id_idx;
