DROP TABLE campaign_budgets;
DROP TABLE cost_rollups;
