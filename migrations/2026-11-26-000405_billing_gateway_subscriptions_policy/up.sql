-- A tenant registers subscriptions of the payment gateway only for its own account: gateway events are routed by
-- this directory.
SELECT make_tenant_table('gateway_subscriptions');
