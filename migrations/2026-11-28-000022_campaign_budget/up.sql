-- The most that the messages of a campaign may cost: `amount` and `currency`. Null: no budget.
ALTER TABLE campaigns ADD COLUMN budget jsonb;
