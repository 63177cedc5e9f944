-- The gateway may report a subscription before the request that created it returns. Such events wait, with growing
-- delays. The insert of the subscription makes them due, so that later events do not wait behind them. SECURITY
-- DEFINER, because a tenant cannot read gateway events.
CREATE FUNCTION wake_gateway_events() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public,
  pg_temp AS $$
BEGIN
  UPDATE gateway_events SET due_at = now()
  WHERE gateway_subscription_id = NEW.gateway_subscription_id AND due_at > now() AND attempts > 0;
  RETURN NULL;
END $$;
CREATE TRIGGER gateway_subscriptions_wake AFTER INSERT ON gateway_subscriptions
  FOR EACH ROW EXECUTE FUNCTION wake_gateway_events();
