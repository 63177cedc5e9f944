ALTER TABLE whatsapp_profiles
  -- Optimistic locking: every statement that changes what a PUT may change raises it by one.
  ADD COLUMN version bigint NOT NULL DEFAULT 1;
