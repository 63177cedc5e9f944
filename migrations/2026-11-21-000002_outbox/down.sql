DROP TABLE notifications;
DROP TABLE audit_logs;
DROP TABLE outbox_events;
