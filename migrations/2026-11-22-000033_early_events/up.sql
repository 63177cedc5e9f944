-- The gateway tells of a subscription while the request that made it is not over: such events wait, longer each time. When
-- the subscription is there they are due, so that what comes next does not wait for them. As the tables' owner, since a
-- tenant reads no events.
CREATE FUNCTION wake_gateway_events() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public,
  pg_temp AS $$
BEGIN
  UPDATE gateway_events SET due_at = now()
  WHERE gateway_subscription_id = NEW.gateway_subscription_id AND due_at > now() AND attempts > 0;
  RETURN NULL;
END $$;
CREATE TRIGGER gateway_subscriptions_wake AFTER INSERT ON gateway_subscriptions
  FOR EACH ROW EXECUTE FUNCTION wake_gateway_events();
