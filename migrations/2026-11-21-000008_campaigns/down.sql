DROP TABLE campaign_queue;
DROP TABLE campaign_counters;
DROP TABLE campaign_sends;
DROP TABLE campaigns;
