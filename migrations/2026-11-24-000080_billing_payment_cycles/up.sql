-- The billing cycle that a payment pays for. Null: the payment is older than this column, and its value decides.
ALTER TABLE billing_history ADD COLUMN cycle text;
