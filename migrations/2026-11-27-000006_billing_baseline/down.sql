DROP VIEW message_usage;
DROP TABLE message_usage_slots;
DROP TABLE gateway_cancellations;
DROP TABLE applied_gateway_events;
DROP TABLE gateway_events;
DROP TABLE gateway_subscriptions;
DROP TABLE billing_history;
DROP TABLE subscriptions;
