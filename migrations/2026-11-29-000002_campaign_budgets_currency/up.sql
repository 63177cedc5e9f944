-- The currency of `reserved`. Null: that of the campaign's budget.
ALTER TABLE campaign_budgets ADD COLUMN currency text;
