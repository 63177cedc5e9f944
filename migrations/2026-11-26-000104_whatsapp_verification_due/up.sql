-- The profiles whose check is due.
CREATE INDEX CONCURRENTLY whatsapp_profiles_next_check_at_idx ON whatsapp_profiles (next_check_at)
  WHERE next_check_at IS NOT NULL;
