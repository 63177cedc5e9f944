-- The time at which a worker next queries the gateway about an intent. That is before the lease (`intent_until`)
-- expires. A change that the gateway has made can be recorded at any time; a missing change may still be in progress
-- until then.
ALTER TABLE subscriptions ADD COLUMN intent_check_at timestamptz;
