CREATE INDEX CONCURRENTLY contacts_wa_id_idx ON contacts (account_id, wa_id)
  WHERE wa_id IS NOT NULL AND deleted_at IS NULL;
