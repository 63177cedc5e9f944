DROP TABLE campaign_retry_batches;
