DROP TABLE message_usage;
DROP TABLE subscriptions;
