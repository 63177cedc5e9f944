-- A `wa_id` belongs to one contact: the next migration makes it unique. If several contacts of an account share one,
-- it stays with the contact that inbound messages from it reach: the one with that phone number, else the oldest. So
-- its conversations continue. The others get their `wa_id` with their next message.
-- safe: contacts share an id only if two concurrent sends set it; no contact with an unshared id is written.
WITH shared AS MATERIALIZED (
  SELECT account_id, wa_id FROM contacts WHERE wa_id IS NOT NULL AND deleted_at IS NULL
  GROUP BY account_id, wa_id HAVING count(*) > 1
), ranked AS (
  SELECT c.account_id, c.id, row_number() OVER (
    PARTITION BY c.account_id, c.wa_id
    ORDER BY coalesce(c.phone IN ('+' || c.wa_id,
      CASE WHEN c.wa_id ~ '^55[1-9][1-9][689][0-9]{7}$' THEN '+55' || substr(c.wa_id, 3, 2) || '9' || substr(c.wa_id, 5) END
    ), false) DESC, c.id
  ) AS rank
  FROM shared s
  JOIN contacts c ON c.account_id = s.account_id AND c.wa_id = s.wa_id AND c.wa_id IS NOT NULL AND c.deleted_at IS NULL
)
UPDATE contacts c SET wa_id = NULL FROM ranked r
WHERE r.rank > 1 AND c.account_id = r.account_id AND c.id = r.id;
