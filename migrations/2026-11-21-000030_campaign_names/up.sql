-- The report of revenue names every campaign that sold something: a range of ids, read from here without the rows.
CREATE INDEX CONCURRENTLY campaigns_name_idx ON campaigns (account_id, id) INCLUDE (name);
