-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX CONCURRENTLY gateway_subscriptions_account_id_idx ON gateway_subscriptions (account_id);
