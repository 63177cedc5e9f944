-- The revenue report as one JSON object.
-- $1 to $7 see bind_window, $8 to $9 dates of the window, $10 maximum number of links, from $11 the ranges.
WITH attributed AS (
  SELECT kind, attributed_to_id AS id, sum(orders)::bigint AS orders, sum(revenue) AS revenue
  FROM {attributions} GROUP BY kind, attributed_to_id HAVING sum(orders) <> 0),
named AS MATERIALIZED ({campaigns} UNION ALL {automations}),
clicked AS (
  SELECT link_id AS id, sum(clicks)::bigint AS clicks FROM {clicked} GROUP BY link_id HAVING sum(clicks) <> 0),
links_shown AS (
  SELECT l.id, l.short_code, l.original_url, coalesce(k.clicks, 0) AS clicks, coalesce(o.orders, 0) AS orders,
    coalesce(o.revenue, 0) AS revenue
  FROM clicked k FULL JOIN (SELECT id, orders, revenue FROM attributed WHERE kind = 'link') o ON o.id = k.id
  JOIN links l ON l.account_id = $1 AND l.id = coalesce(k.id, o.id)
  ORDER BY revenue DESC, clicks DESC, l.id LIMIT $10)
SELECT json_build_object('days', {days},
  'ad_spend', (SELECT coalesce(sum(amount), 0)::text FROM ad_spend
    WHERE account_id = $1 AND date BETWEEN $8 AND $9),
  'campaigns', c.campaigns, 'automations', c.automations,
  'links', (SELECT coalesce(json_agg(json_build_object('id', id, 'short_code', short_code,
      'original_url', original_url, 'clicks', clicks, 'orders', orders, 'revenue', revenue::text)
      ORDER BY revenue DESC, clicks DESC, id), '[]') FROM links_shown))::text AS totals
FROM (SELECT {attributed_campaigns} AS campaigns, {attributed_automations} AS automations
  FROM attributed JOIN named USING (kind, id)) AS c
