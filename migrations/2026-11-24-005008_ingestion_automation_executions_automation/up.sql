-- Without it, removing what automation_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY automation_executions_automation_id_idx ON automation_executions (account_id, automation_id);
