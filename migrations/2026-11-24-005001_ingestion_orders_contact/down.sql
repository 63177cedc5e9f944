DROP INDEX CONCURRENTLY orders_contact_id_idx;
