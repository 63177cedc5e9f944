DROP INDEX CONCURRENTLY orders_campaign_id_idx;
