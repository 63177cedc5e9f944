DROP TABLE webhook_logs;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_events;
DROP FUNCTION has_subscribers(uuid, text);
DROP FUNCTION contact_payload(contacts);
DROP FUNCTION to_rfc3339(timestamptz);
DROP TABLE webhook_endpoints;
-- No older version removes these events.
DELETE FROM outbox_events WHERE kind = 'webhook';
