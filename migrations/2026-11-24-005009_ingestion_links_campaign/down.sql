DROP INDEX CONCURRENTLY links_campaign_id_idx;
