DROP TABLE idempotency_key_counts;
