-- Counters that are written hundreds of times a second are kept in slots, rows that are added up. While somebody holds
-- an old snapshot no version of a row can be cleared away, and who looks for the row walks over all of them: spread over
-- slots, there are few of each.

-- The slot that is written now, of what counts so many messages. Slot 0 is that of the beginning, by which the others
-- are made, and of all that is rare; it has the number of messages, as the total of a campaign and the places reserved in
-- a month. For each ten thousand there is another slot, so that each is written no more than so often, in whole seconds
-- that it takes in turn.
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
  -- What was reserved in one slot leaves in another.
  DROP CONSTRAINT message_usage_sent_check,
  DROP CONSTRAINT message_usage_reserved_check,
  ADD COLUMN slot smallint NOT NULL DEFAULT 0,
  DROP CONSTRAINT message_usage_pkey,
  ADD CONSTRAINT message_usage_slots_pkey PRIMARY KEY (account_id, month, slot),
  SET (fillfactor = 50);

-- How many sends of a campaign are in each status. All slots are of the moment of its freeze.
CREATE VIEW campaign_counters WITH (security_invoker = true) AS
  SELECT account_id, campaign_id, created_at, sum(total)::bigint AS total, sum(pending)::bigint AS pending,
    sum(sent)::bigint AS sent, sum(delivered)::bigint AS delivered, sum(read)::bigint AS read,
    sum(failed)::bigint AS failed
  FROM campaign_counter_slots GROUP BY account_id, campaign_id, created_at;
GRANT SELECT ON campaign_counters TO recado_tenant;

-- Outbound messages of a calendar month (UTC): those sent, those that runs under way may still send, and tests.
CREATE VIEW message_usage WITH (security_invoker = true) AS
  SELECT account_id, month, sum(sent)::bigint AS sent, sum(reserved)::bigint AS reserved, sum(test_sends)::bigint
    AS test_sends
  FROM message_usage_slots GROUP BY account_id, month;
GRANT SELECT ON message_usage TO recado_tenant;

-- A send changes at least twice soon after it was made. With room for three versions beside each other all of them stay
-- on its page, even while none may be cleared away.
ALTER TABLE campaign_sends SET (fillfactor = 35);
