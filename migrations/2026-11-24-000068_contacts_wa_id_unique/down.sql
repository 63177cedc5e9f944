DROP INDEX CONCURRENTLY contacts_wa_id_unique;
