DROP INDEX CONCURRENTLY campaigns_name_idx;
