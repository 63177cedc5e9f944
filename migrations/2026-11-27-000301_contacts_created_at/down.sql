DROP INDEX contacts_created_at_idx;
