DROP TABLE campaign_run_contents;
