DROP POLICY tenant_isolation ON gateway_subscriptions;
ALTER TABLE gateway_subscriptions DISABLE ROW LEVEL SECURITY;
