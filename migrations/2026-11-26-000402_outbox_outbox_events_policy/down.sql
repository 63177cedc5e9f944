DROP POLICY tenant_isolation ON outbox_events;
ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY;
