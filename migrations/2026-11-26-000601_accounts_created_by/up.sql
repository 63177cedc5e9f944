-- The user who made the account with `POST /api/accounts`: `ACCOUNTS_PER_USER` limits how many of these the user owns.
-- Null: a platform administrator made the account, or it is older than this column.
ALTER TABLE accounts ADD COLUMN created_by uuid;
