-- Buckets of three hours (180 `bucket_minutes`) for daily series: ninety days in Brasilia are 720 rows instead of
-- 8640. Buckets of seven days (10080, starting on Thursdays, as 1970-01-01 was one) for totals over many products and
-- attributions. Rows are inserted in the order in which reports read them, so that they are stored close together.
ALTER TABLE order_rollups DROP CONSTRAINT order_rollups_bucket_minutes_check,
  ADD CONSTRAINT order_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440));
ALTER TABLE metric_rollups DROP CONSTRAINT metric_rollups_bucket_minutes_check,
  ADD CONSTRAINT metric_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440));
ALTER TABLE message_rollups DROP CONSTRAINT message_rollups_bucket_minutes_check,
  ADD CONSTRAINT message_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440));
ALTER TABLE product_rollups DROP CONSTRAINT product_rollups_bucket_minutes_check,
  ADD CONSTRAINT product_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080));
ALTER TABLE attribution_rollups DROP CONSTRAINT attribution_rollups_bucket_minutes_check,
  ADD CONSTRAINT attribution_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080));

INSERT INTO order_rollups (account_id, bucket_minutes, bucket_start, platform, placed, pending, cancelled, refunded,
  paid, revenue,
  product_costs, gateway_fees, attributed_orders, attributed_revenue)
SELECT account_id, 180, date_bin('3 hours', bucket_start, '1970-01-01 00:00Z'), platform, sum(placed), sum(pending),
  sum(cancelled),
  sum(refunded), sum(paid), sum(revenue), sum(product_costs), sum(gateway_fees), sum(attributed_orders),
  sum(attributed_revenue)
FROM order_rollups WHERE bucket_minutes = 15 GROUP BY 1, 3, 4 ORDER BY 1, 3;

INSERT INTO metric_rollups (account_id, metric_name, bucket_minutes, bucket_start, events, value, last_contacts)
SELECT account_id, metric_name, 180, date_bin('3 hours', bucket_start, '1970-01-01 00:00Z'), sum(events), sum(value),
  sum(last_contacts)
FROM metric_rollups WHERE bucket_minutes = 15 GROUP BY 1, 2, 4 ORDER BY 1, 2, 4;

INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed, received)
SELECT account_id, 180, date_bin('3 hours', bucket_start, '1970-01-01 00:00Z'), sum(sent), sum(delivered), sum(read),
  sum(failed),
  sum(received)
FROM message_rollups WHERE bucket_minutes = 15 GROUP BY 1, 3 ORDER BY 1, 3;

INSERT INTO product_rollups (account_id, bucket_minutes, bucket_start, product_id, quantity, revenue)
SELECT account_id, 10080, date_bin('7 days', bucket_start, '1970-01-01 00:00Z'), product_id, sum(quantity), sum(revenue)
FROM product_rollups WHERE bucket_minutes = 1440 GROUP BY 1, 3, 4 ORDER BY 1, 3;

INSERT INTO attribution_rollups (account_id, bucket_minutes, bucket_start, kind, attributed_to_id, orders, revenue)
SELECT account_id, 10080, date_bin('7 days', bucket_start, '1970-01-01 00:00Z'), kind, attributed_to_id, sum(orders),
  sum(revenue)
FROM attribution_rollups WHERE bucket_minutes = 1440 GROUP BY 1, 3, 4, 5 ORDER BY 1, 3;
