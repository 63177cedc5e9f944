DROP TABLE partition_horizons;
