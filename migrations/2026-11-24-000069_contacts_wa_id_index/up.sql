-- `contacts_wa_id_unique` serves the same reads.
DROP INDEX CONCURRENTLY contacts_wa_id_idx;
