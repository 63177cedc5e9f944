-- Without this index, deleting a row that `automation_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY orders_automation_id_idx ON orders (account_id, automation_id) WHERE automation_id IS NOT NULL;
