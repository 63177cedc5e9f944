-- Claims an idempotency key and counts it, unless the scope has used up its keys of the day.
-- $1 scope, $2 key, $3 holder, $4 lease, $5 term of a response, $6 maximum of keys a day, $7 slot of the count.
WITH used AS (
  SELECT coalesce(sum(keys), 0) >= $6 AS is_full FROM idempotency_key_counts
  WHERE scope = $1 AND day = (now() AT TIME ZONE 'UTC')::date),
claimed AS (
  INSERT INTO idempotency_keys AS k (scope, key, holder, leased_until)
  SELECT $1, $2, $3, now() + $4 * interval '1 microsecond' FROM used WHERE NOT is_full
  ON CONFLICT (scope, key) DO UPDATE
    SET holder = excluded.holder, leased_until = excluded.leased_until, request_hash = NULL, response = NULL,
        created_at = now()
    WHERE (k.response IS NULL AND k.leased_until <= now())
       OR (k.response IS NOT NULL AND k.created_at <= now() - $5 * interval '1 microsecond')
  RETURNING scope),
counted AS (
  INSERT INTO idempotency_key_counts AS c (scope, day, slot, keys)
  SELECT scope, (now() AT TIME ZONE 'UTC')::date, $7, 1 FROM claimed
  ON CONFLICT (scope, day, slot) DO UPDATE SET keys = c.keys + 1)
SELECT EXISTS (SELECT FROM claimed) AS is_claimed, is_full FROM used
