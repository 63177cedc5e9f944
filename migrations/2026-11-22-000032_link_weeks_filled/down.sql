DELETE FROM link_rollups WHERE bucket_minutes = 10080;
