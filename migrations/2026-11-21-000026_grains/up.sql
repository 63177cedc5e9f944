-- Sums of three hours (span 180) for what is shown day by day: ninety days in Brasilia are 720 rows instead of 8640. Sums
-- of seven days (span 10080, beginning on Thursdays as 1970 did) for totals of many products and origins. Written in the
-- order in which they are read, so that they lie close.
ALTER TABLE order_rollups DROP CONSTRAINT order_rollups_span_check,
  ADD CONSTRAINT order_rollups_span_check CHECK (span IN (15, 180, 1440));
ALTER TABLE metric_rollups DROP CONSTRAINT metric_rollups_span_check,
  ADD CONSTRAINT metric_rollups_span_check CHECK (span IN (15, 180, 1440));
ALTER TABLE message_rollups DROP CONSTRAINT message_rollups_span_check,
  ADD CONSTRAINT message_rollups_span_check CHECK (span IN (15, 180, 1440));
ALTER TABLE product_rollups DROP CONSTRAINT product_rollups_span_check,
  ADD CONSTRAINT product_rollups_span_check CHECK (span IN (15, 1440, 10080));
ALTER TABLE attribution_rollups DROP CONSTRAINT attribution_rollups_span_check,
  ADD CONSTRAINT attribution_rollups_span_check CHECK (span IN (15, 1440, 10080));

INSERT INTO order_rollups (account_id, span, at, platform, placed, pending, cancelled, refunded, paid, revenue,
  product_costs, gateway_fees, attributed_orders, attributed_revenue)
SELECT account_id, 180, date_bin('3 hours', at, '1970-01-01 00:00Z'), platform, sum(placed), sum(pending), sum(cancelled),
  sum(refunded), sum(paid), sum(revenue), sum(product_costs), sum(gateway_fees), sum(attributed_orders),
  sum(attributed_revenue)
FROM order_rollups WHERE span = 15 GROUP BY 1, 3, 4 ORDER BY 1, 3;

INSERT INTO metric_rollups (account_id, metric_name, span, at, events, value, last_contacts)
SELECT account_id, metric_name, 180, date_bin('3 hours', at, '1970-01-01 00:00Z'), sum(events), sum(value),
  sum(last_contacts)
FROM metric_rollups WHERE span = 15 GROUP BY 1, 2, 4 ORDER BY 1, 2, 4;

INSERT INTO message_rollups (account_id, span, at, sent, delivered, read, failed, received)
SELECT account_id, 180, date_bin('3 hours', at, '1970-01-01 00:00Z'), sum(sent), sum(delivered), sum(read), sum(failed),
  sum(received)
FROM message_rollups WHERE span = 15 GROUP BY 1, 3 ORDER BY 1, 3;

INSERT INTO product_rollups (account_id, span, at, product_id, quantity, revenue)
SELECT account_id, 10080, date_bin('7 days', at, '1970-01-01 00:00Z'), product_id, sum(quantity), sum(revenue)
FROM product_rollups WHERE span = 1440 GROUP BY 1, 3, 4 ORDER BY 1, 3;

INSERT INTO attribution_rollups (account_id, span, at, kind, origin_id, orders, revenue)
SELECT account_id, 10080, date_bin('7 days', at, '1970-01-01 00:00Z'), kind, origin_id, sum(orders), sum(revenue)
FROM attribution_rollups WHERE span = 1440 GROUP BY 1, 3, 4, 5 ORDER BY 1, 3;
