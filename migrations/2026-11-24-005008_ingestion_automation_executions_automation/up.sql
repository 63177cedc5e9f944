-- Without this index, deleting a row that `automation_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY automation_executions_automation_id_idx ON automation_executions (account_id, automation_id);
