-- Without it, removing what automation_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY orders_automation_id_idx ON orders (account_id, automation_id) WHERE automation_id IS NOT NULL;
