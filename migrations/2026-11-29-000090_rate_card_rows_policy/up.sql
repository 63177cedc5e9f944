-- Rates belong to no account, so their policy has no condition. Under a condition the planner does not use the index on
-- countries, because array overlap is not leakproof: every status update with a price read all rows of all cards.
ALTER POLICY account_reads ON rate_card_rows USING (true);
