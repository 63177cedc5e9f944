DROP TRIGGER gateway_subscriptions_hurry ON gateway_subscriptions;
DROP FUNCTION hurry_gateway_events();
