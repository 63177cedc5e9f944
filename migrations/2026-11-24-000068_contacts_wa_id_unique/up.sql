-- If two contacts were taught one id since the migration before, this fails and names it: run that one's up.sql again.
CREATE UNIQUE INDEX CONCURRENTLY contacts_wa_id_unique ON contacts (account_id, wa_id)
  WHERE wa_id IS NOT NULL AND deleted_at IS NULL;
