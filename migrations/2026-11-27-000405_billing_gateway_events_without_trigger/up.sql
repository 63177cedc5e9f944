-- The store that inserts a gateway subscription makes its waiting events due (`billing::wake_events`).
DROP TRIGGER gateway_subscriptions_wake ON gateway_subscriptions;
DROP FUNCTION wake_gateway_events();
