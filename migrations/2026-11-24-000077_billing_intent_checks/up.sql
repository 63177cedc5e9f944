-- When a worker next asks the gateway about an intent. It asks before the lease (`intent_until`) is over: what the gateway
-- has done can be recorded at any time, whereas what it has not done yet may still be under way until then.
ALTER TABLE subscriptions ADD COLUMN intent_check_at timestamptz;
