DROP TABLE direct_message_references;
DROP TABLE campaign_archives;
DROP TABLE retention_horizons;
DROP TABLE retention_settings;
