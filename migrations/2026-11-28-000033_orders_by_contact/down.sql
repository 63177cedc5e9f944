DROP INDEX orders_contact_id_idx;
