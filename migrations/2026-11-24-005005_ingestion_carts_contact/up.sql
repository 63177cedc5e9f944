-- Without this index, deleting a row that `contact_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY carts_contact_id_idx ON carts (account_id, contact_id) WHERE contact_id IS NOT NULL;
