DELETE FROM link_rollups WHERE span = 10080;
