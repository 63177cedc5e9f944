-- What a payment is for. None: it was first seen before this column, and its value decides.
ALTER TABLE billing_history ADD COLUMN cycle text;
