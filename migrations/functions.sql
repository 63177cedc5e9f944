-- Functions that hold no data. `recado migrate` recreates them before it runs migrations, which use the first two. A
-- changed body acts at once, also for servers of the previous version, so it must fit both.

-- Enables row-level security: only rows of the account in `app.account_id` are visible and writable; without that
-- setting, none are. The policy has no sub-select because Citus rejects those. It becomes a one-time filter when the
-- query names the account. It grants nothing: each migration names the privileges of its tables.
CREATE OR REPLACE FUNCTION make_tenant_table(name regclass, account_column text DEFAULT 'account_id') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  own text := format('%I = nullif(current_setting(''app.account_id'', true), '''')::uuid', account_column);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant_isolation ON %s USING (%s) WITH CHECK (%s)', name, own, own);
END
$$;

-- Sets the storage parameters of a table by its class.
--   entity:  rows of people and settings, changed now and then.
--   ledger:  grows with messages and is rarely changed. The defaults would wait for a fifth of the table.
--   queue:   rows come and go. Vacuum runs early and without pauses, because every claim walks over dead rows.
--   counter: few rows that are updated all the time. Half-empty pages keep the row versions on their page (HOT).
--   rollup:  sums by time. Only the newest rows change.
CREATE OR REPLACE FUNCTION set_storage(name regclass, class text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  options text := CASE class
    WHEN 'entity' THEN 'autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05'
    WHEN 'ledger' THEN 'autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.01,
      autovacuum_analyze_scale_factor = 0.02'
    WHEN 'queue' THEN 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0'
    WHEN 'counter' THEN 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0'
    WHEN 'rollup' THEN 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05'
  END;
BEGIN
  IF options IS NULL THEN
    RAISE EXCEPTION 'no storage class "%"', class USING HINT = 'The classes are entity, ledger, queue, counter, rollup.';
  END IF;
  EXECUTE format('ALTER TABLE %s SET (%s)', name, options);
END
$$;

-- Returns the slot to write now, for a counter of this many messages (a campaign's total, or the messages reserved in
-- a month). Slot 0 is the first row, from which the others are created, and takes all rare writes. Every ten thousand
-- messages add one slot. Each second another slot is written, so that the write rate of each slot is bounded: while a
-- transaction holds an old snapshot, VACUUM cannot remove dead row versions, and a lookup walks over all of them.
CREATE OR REPLACE FUNCTION counter_slot(messages bigint) RETURNS smallint LANGUAGE sql STABLE AS $$
  SELECT (CASE WHEN messages < 10000 THEN 0
    ELSE 1 + extract(epoch FROM now())::bigint % least(messages / 10000, 1000) END)::smallint
$$;

-- Whether an endpoint of the account, active or not, subscribes to events of this type: only such events are stored.
-- Without an endpoint this costs one index probe. It is plpgsql because that caches the plan; an EXISTS in a plain
-- SQL function is neither inlined nor cached.
CREATE OR REPLACE FUNCTION has_subscribers(account uuid, kind text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (
    SELECT 1 FROM webhook_endpoints e
    WHERE e.account_id = account AND e.direction = 'outbound' AND e.events && ARRAY[kind, '*']);
END
$$;

-- The smallest id of a millisecond; the smallest of all ids for an unknown time. Ids of version 7 and send ids begin
-- with their time in milliseconds since 1970.
CREATE OR REPLACE FUNCTION first_id(at timestamptz) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT overlay(repeat('0', 32) PLACING coalesce(
    lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), repeat('0', 12)) FROM 1)::uuid
$$;

-- The greatest id of a millisecond; the greatest of all ids for an unknown time.
CREATE OR REPLACE FUNCTION last_id(at timestamptz) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT overlay(repeat('f', 32) PLACING coalesce(
    lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), repeat('f', 12)) FROM 1)::uuid
$$;

-- The id of the send of a campaign to a contact: a UUID of version 8. It begins with the time of the freeze, which all
-- sends of a campaign share; the other bits are a hash of campaign and contact.
CREATE OR REPLACE FUNCTION send_id(frozen_at timestamptz, campaign_id uuid, contact_id uuid) RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT overlay(overlay(md5(campaign_id::text || contact_id::text)
    PLACING lpad(to_hex(floor(extract(epoch FROM frozen_at) * 1000)::bigint), 12, '0') || '8' FROM 1)
    PLACING 'a' FROM 17)::uuid
$$;

-- WhatsApp's user id of a contact that a number may use: the id that the number's portfolio reported, else the one of a
-- parent business, else the contact's own id (`latest`) if no number reported it. Null: the number knows none.
CREATE OR REPLACE FUNCTION fitting_user_id(account uuid, contact uuid, latest text, number_scope text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  RETURN coalesce(
    (SELECT i.wa_user_id FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.scope = number_scope),
    (SELECT i.parent_user_id FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.parent_user_id IS NOT NULL
      ORDER BY i.last_seen_at DESC LIMIT 1),
    CASE WHEN NOT EXISTS (SELECT 1 FROM contact_identities i
      WHERE i.account_id = account AND i.contact_id = contact AND i.wa_user_id = latest) THEN latest END);
END
$$;

-- The contacts of a person: `contact` and all that lead to it or from it by what they name. A contact names one other
-- only, so a person with three contacts is a chain or a star.
CREATE OR REPLACE FUNCTION same_person_contacts(account uuid, contact uuid) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 2 AS $$
BEGIN
  RETURN QUERY WITH RECURSIVE person (id) AS (
    SELECT contact
    UNION
    SELECT n.id FROM person p CROSS JOIN LATERAL (
      SELECT c.same_person_as AS id FROM contacts c
        WHERE c.account_id = account AND c.id = p.id AND c.same_person_as IS NOT NULL
      UNION ALL
      SELECT c.id FROM contacts c WHERE c.account_id = account AND c.same_person_as = p.id) n)
    SELECT p.id FROM person p;
END
$$;

-- Whether another contact of the same person opted out: an opt-out of one counts for all. `other` is one of them.
CREATE OR REPLACE FUNCTION same_person_opted_out(account uuid, other uuid) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM same_person_contacts(account, other) p (id)
    JOIN contacts o ON o.account_id = account AND o.id = p.id
    WHERE o.deleted_at IS NULL AND o.opted_out_at IS NOT NULL);
END
$$;

-- Whether a campaign writes to another contact of the same person instead: to one with a phone before one without, then
-- to the one with the smaller id. `other` is one of them.
CREATE OR REPLACE FUNCTION same_person_goes_first(account uuid, contact uuid, phone text, other uuid) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM same_person_contacts(account, other) p (id)
    JOIN contacts o ON o.account_id = account AND o.id = p.id
    WHERE o.deleted_at IS NULL AND o.id <> contact
      AND (o.phone IS NULL, o.id) < (same_person_goes_first.phone IS NULL, contact));
END
$$;
