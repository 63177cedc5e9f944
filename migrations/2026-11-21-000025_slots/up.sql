-- Sharded counters: a counter that is written hundreds of times a second is spread over slots, and readers add them
-- up. While a transaction holds an old snapshot, VACUUM cannot remove dead row versions and every lookup walks over
-- all of them. Spread over slots, each row has few versions.

-- Returns the slot to write now, for a counter of this many messages (a campaign's total, or the messages reserved in
-- a month). Slot 0 is the first row, from which the others are created, and takes all rare writes. Every ten thousand
-- messages add one slot. Each second another slot is written, so that the write rate of each slot is bounded.
CREATE FUNCTION counter_slot(messages bigint) RETURNS smallint LANGUAGE sql STABLE AS $$
  SELECT (CASE WHEN messages < 10000 THEN 0
    ELSE 1 + extract(epoch FROM now())::bigint % least(messages / 10000, 1000) END)::smallint
$$;

ALTER TABLE campaign_counters RENAME TO campaign_counter_slots;
ALTER TABLE campaign_counter_slots RENAME CONSTRAINT campaign_counters_campaign_id_fkey
  TO campaign_counter_slots_campaign_id_fkey;
ALTER TABLE campaign_counter_slots
  ADD COLUMN slot smallint NOT NULL DEFAULT 0,
  DROP CONSTRAINT campaign_counters_pkey,
  ADD CONSTRAINT campaign_counter_slots_pkey PRIMARY KEY (account_id, campaign_id, slot);

ALTER TABLE message_usage RENAME TO message_usage_slots;
ALTER TABLE message_usage_slots RENAME CONSTRAINT message_usage_account_id_fkey TO message_usage_slots_account_id_fkey;
ALTER TABLE message_usage_slots
  RENAME CONSTRAINT message_usage_test_sends_check TO message_usage_slots_test_sends_check;
ALTER TABLE message_usage_slots
  -- A reservation made in one slot may be released in another, so a single slot can be negative.
  DROP CONSTRAINT message_usage_sent_check,
  DROP CONSTRAINT message_usage_reserved_check,
  ADD COLUMN slot smallint NOT NULL DEFAULT 0,
  DROP CONSTRAINT message_usage_pkey,
  ADD CONSTRAINT message_usage_slots_pkey PRIMARY KEY (account_id, month, slot),
  SET (fillfactor = 50);

-- Sends of a campaign by status. All slots carry the time of the campaign's freeze.
CREATE VIEW campaign_counters WITH (security_invoker = true) AS
  SELECT account_id, campaign_id, created_at, sum(total)::bigint AS total, sum(pending)::bigint AS pending,
    sum(sent)::bigint AS sent, sum(delivered)::bigint AS delivered, sum(read)::bigint AS read,
    sum(failed)::bigint AS failed
  FROM campaign_counter_slots GROUP BY account_id, campaign_id, created_at;
GRANT SELECT ON campaign_counters TO recado_tenant;

-- Outbound messages of a calendar month (UTC): sent, reserved for runs that are still sending, and test sends.
CREATE VIEW message_usage WITH (security_invoker = true) AS
  SELECT account_id, month, sum(sent)::bigint AS sent, sum(reserved)::bigint AS reserved, sum(test_sends)::bigint
    AS test_sends
  FROM message_usage_slots GROUP BY account_id, month;
GRANT SELECT ON message_usage TO recado_tenant;

-- A send is updated at least twice soon after its creation. With room for three row versions, all of them stay on its
-- page even while VACUUM can remove none.
ALTER TABLE campaign_sends SET (fillfactor = 35);
