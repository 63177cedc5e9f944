-- A tenant appends events only for its own account: the relay writes audit entries, notifications and webhook
-- events from them.
SELECT make_tenant_table('outbox_events');
