DROP INDEX CONCURRENTLY orders_link_id_idx;
