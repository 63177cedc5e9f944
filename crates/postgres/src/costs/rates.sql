-- Reads the rates that apply to messages in some countries: of every country, currency and category the row of the newest
-- card in force at the first time, and all rows that come into force later. The order of cards is that of
-- `RateTable::rate`. $1 countries, $2 first time, $3 last time, $4 the creation time of the newest card, or null.
WITH covering AS MATERIALIZED (
  SELECT r.card_id, r.row_no, c.created_at AS card_created_at, c.used_at IS NOT NULL AS card_is_used, r.market,
    r.countries, r.currency, r.category, r.rate::text AS rate, r.effective_at
  FROM rate_card_rows r JOIN rate_cards c ON c.id = r.card_id
  WHERE r.countries && $1 AND r.effective_at <= $3
    AND ($4 IS NULL OR date_trunc('milliseconds', c.created_at) <= $4)
), in_force AS MATERIALIZED (
  SELECT DISTINCT ON (k.country, r.currency, r.category) r.card_id, r.row_no
  FROM covering r JOIN unnest($1) AS k (country) ON k.country = ANY (r.countries)
  WHERE r.effective_at <= $2
  ORDER BY k.country, r.currency, r.category, r.card_created_at DESC, r.card_id DESC, r.effective_at DESC
)
SELECT card_id, card_created_at, card_is_used, market, countries, currency, category, rate, effective_at
FROM covering WHERE effective_at > $2 OR (card_id, row_no) IN (SELECT card_id, row_no FROM in_force)
