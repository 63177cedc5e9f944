DROP TABLE webhook_inbox;
DROP TABLE webhook_logs;
DROP INDEX webhook_deliveries_abandoned_idx;
DROP TABLE webhook_events;
