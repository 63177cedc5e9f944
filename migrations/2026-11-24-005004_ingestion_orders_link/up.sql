-- Without this index, deleting a row that `link_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY orders_link_id_idx ON orders (account_id, link_id) WHERE link_id IS NOT NULL;
