-- If two contacts got the same id since the previous migration, this fails and names it. Then run that migration's
-- up.sql again.
CREATE UNIQUE INDEX CONCURRENTLY contacts_wa_id_unique ON contacts (account_id, wa_id)
  WHERE wa_id IS NOT NULL AND deleted_at IS NULL;
