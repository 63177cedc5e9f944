ALTER POLICY account_reads ON rate_card_rows
  USING (nullif(current_setting('app.account_id', true), '')::uuid IS NOT NULL);
