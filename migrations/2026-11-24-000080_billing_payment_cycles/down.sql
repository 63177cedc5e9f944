ALTER TABLE billing_history DROP COLUMN cycle;
