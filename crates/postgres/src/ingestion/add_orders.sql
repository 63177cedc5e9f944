-- Adds the changes of a batch to the rollup of orders, in key order.
-- $1 account, $2 to $4 keys, $5 to $14 sums.
INSERT INTO order_rollups AS r (account_id, bucket_minutes, bucket_start, platform, placed, pending,
  cancelled, refunded, paid,
  revenue, product_costs, gateway_fees, attributed_orders, attributed_revenue)
SELECT $1, d.bucket_minutes, d.bucket_start, d.platform, d.placed, d.pending, d.cancelled, d.refunded, d.paid,
  d.revenue::numeric, d.costs::numeric, d.fees::numeric, d.attributed, d.attributed_revenue::numeric
FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) WITH ORDINALITY
  AS d (bucket_minutes, bucket_start, platform, placed, pending, cancelled, refunded, paid, revenue, costs,
    fees, attributed,
    attributed_revenue, position)
ORDER BY d.position
ON CONFLICT (account_id, bucket_minutes, bucket_start, platform)
  DO UPDATE SET placed = r.placed + excluded.placed,
  pending = r.pending + excluded.pending, cancelled = r.cancelled + excluded.cancelled,
  refunded = r.refunded + excluded.refunded, paid = r.paid + excluded.paid,
  revenue = r.revenue + excluded.revenue, product_costs = r.product_costs + excluded.product_costs,
  gateway_fees = r.gateway_fees + excluded.gateway_fees,
  attributed_orders = r.attributed_orders + excluded.attributed_orders,
  attributed_revenue = r.attributed_revenue + excluded.attributed_revenue
