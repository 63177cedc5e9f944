ALTER TABLE campaign_budgets DROP COLUMN currency;
