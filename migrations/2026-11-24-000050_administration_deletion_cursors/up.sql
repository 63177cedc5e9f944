-- How far the removal of an account is: the table that is being emptied, and the last primary key removed from it.
ALTER TABLE account_deletions
  ADD COLUMN table_name text,
  ADD COLUMN after text[];
