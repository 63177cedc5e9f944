DROP TABLE webhook_logs;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_events;
DROP FUNCTION webhook_listens(uuid, text);
DROP FUNCTION told_contact(contacts);
DROP FUNCTION published_moment(timestamptz);
DROP TABLE webhook_endpoints;
-- Nothing of an older version takes these away.
DELETE FROM outbox_events WHERE kind = 'webhook';
