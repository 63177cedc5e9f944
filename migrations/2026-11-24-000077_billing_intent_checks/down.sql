ALTER TABLE subscriptions DROP COLUMN intent_check_at;
