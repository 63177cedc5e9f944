DROP TABLE webhook_inbox;
DROP TABLE webhook_logs;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_events;
DROP TABLE webhook_endpoint_ids;
DROP TABLE webhook_endpoints;
