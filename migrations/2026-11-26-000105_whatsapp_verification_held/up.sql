-- The profiles that still wait for held messages. Few: a profile waits only for a moment after it was verified.
CREATE INDEX CONCURRENTLY whatsapp_profiles_held_since_idx ON whatsapp_profiles (held_since)
  WHERE held_since IS NOT NULL AND verification_state = 'verified';
