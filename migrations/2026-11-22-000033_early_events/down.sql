DROP TRIGGER gateway_subscriptions_wake ON gateway_subscriptions;
DROP FUNCTION wake_gateway_events();
