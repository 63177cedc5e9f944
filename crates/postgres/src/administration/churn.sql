-- The subscriptions that ended on each day, and those that lived at its beginning. `counted`: subscriptions that count.
-- $1 first day, $2 last day.
WITH lives AS (
  SELECT (created_at AT TIME ZONE 'UTC')::date AS begun, (ended_at AT TIME ZONE 'UTC')::date AS ended, monthly
  FROM {counted} s WHERE value > 0),
moves AS (
  SELECT greatest(begun + 1, $1) AS date, 1 AS step FROM lives WHERE begun + 1 <= $2
  UNION ALL
  SELECT greatest(ended + 1, $1), -1 FROM lives WHERE ended + 1 <= $2),
ends AS (
  SELECT ended AS date, count(*) AS n, sum(monthly)::bigint AS value, count(*) FILTER (WHERE begun < ended) AS older
  FROM lives WHERE ended BETWEEN $1 AND $2 GROUP BY ended)
SELECT d.date::date AS date, coalesce(e.n, 0) AS ended, coalesce(e.value, 0) AS ended_value,
  (sum(coalesce(v.step, 0)) OVER (ORDER BY d.date))::bigint AS live_before, coalesce(e.older, 0) AS ended_of_these
FROM generate_series($1::timestamp, $2::timestamp, interval '1 day') d (date)
LEFT JOIN (SELECT date, sum(step) AS step FROM moves GROUP BY date) v ON v.date = d.date
LEFT JOIN ends e ON e.date = d.date
ORDER BY d.date
