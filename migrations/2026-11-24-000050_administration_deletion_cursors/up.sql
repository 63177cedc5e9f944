-- Progress of an account's deletion: the table that is being emptied, and the primary key of the last deleted row.
ALTER TABLE account_deletions
  ADD COLUMN table_name text,
  ADD COLUMN after text[];
