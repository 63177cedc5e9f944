-- The e-commerce report as one JSON object.
-- $1 to $7 see bind_window, $8 maximum number of products, from $9 the ranges.
WITH sold AS (
  SELECT platform, sum(placed)::bigint AS placed, sum(pending)::bigint AS pending,
    sum(cancelled)::bigint AS cancelled, sum(refunded)::bigint AS refunded, sum(paid)::bigint AS paid,
    sum(revenue) AS revenue
  FROM {orders} GROUP BY platform),
products AS (
  SELECT product_id, sum(quantity) AS quantity, sum(revenue) AS revenue
  FROM {products} GROUP BY product_id HAVING sum(quantity) <> 0
  ORDER BY revenue DESC, product_id LIMIT $8)
SELECT json_build_object('days', {days},
  'platforms', (SELECT coalesce(json_agg(json_build_object('platform', platform, 'orders', paid,
      'revenue', revenue::text) ORDER BY revenue DESC, platform) FILTER (WHERE paid <> 0), '[]') FROM sold),
  'products', (SELECT coalesce(json_agg(json_build_object('product_id', p.product_id, 'name', n.name,
      'quantity', p.quantity::text, 'revenue', p.revenue::text) ORDER BY p.revenue DESC, p.product_id), '[]')
    FROM products p JOIN product_names n ON n.account_id = $1 AND n.product_id = p.product_id),
  {placed}, {pending}, {cancelled}, {refunded}, {carts}, {recovered})::text AS totals
FROM (SELECT sum(placed) AS placed, sum(pending) AS pending, sum(cancelled) AS cancelled,
    sum(refunded) AS refunded FROM sold) AS s,
  (SELECT sum(carts) AS carts, sum(recovered) AS recovered FROM {all_carts}) AS c
