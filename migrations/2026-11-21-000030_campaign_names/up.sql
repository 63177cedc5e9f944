-- Covering index: the revenue report shows the name of every campaign with sales, and reads a range of ids without
-- the table's rows.
CREATE INDEX CONCURRENTLY campaigns_name_idx ON campaigns (account_id, id) INCLUDE (name);
