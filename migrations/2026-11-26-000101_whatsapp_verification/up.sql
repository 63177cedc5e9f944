-- Whether WhatsApp has confirmed that a profile's number belongs to the owner of its token. The defaults are those of
-- a new profile, also for servers of the previous version.
ALTER TABLE whatsapp_profiles
  ADD COLUMN verification_state text NOT NULL DEFAULT 'pending',
  -- The checks as the API shows them.
  ADD COLUMN checks jsonb NOT NULL DEFAULT '[]',
  ADD COLUMN checked_at timestamptz,
  -- When the worker checks next. Null: never by itself.
  ADD COLUMN next_check_at timestamptz DEFAULT now(),
  -- Until then a worker is checking.
  ADD COLUMN check_leased_until timestamptz,
  ADD COLUMN pending_since timestamptz DEFAULT now(),
  ADD COLUMN failed_since timestamptz,
  -- A failure of a verified profile that a second check has not confirmed yet.
  ADD COLUMN suspected_check text,
  ADD COLUMN suspected_since timestamptz,
  -- Inbound messages since then are held for the profile. Kept by a verified profile until it has received them.
  ADD COLUMN held_since timestamptz DEFAULT now(),
  -- Grows with each change of phone_number_id, waba_id or access_token: a check with earlier ones records nothing.
  ADD COLUMN credentials_version bigint NOT NULL DEFAULT 1,
  -- Optimistic locking of the verification and of the number.
  ADD COLUMN verification_version bigint NOT NULL DEFAULT 1,
  -- WhatsApp's values of the number, as the API shows them.
  ADD COLUMN number jsonb NOT NULL DEFAULT '{}',
  -- WhatsApp's last answer about the number's health.
  ADD COLUMN health jsonb,
  ADD COLUMN health_asked_at timestamptz,
  ADD COLUMN last_inbound_at timestamptz,
  ADD COLUMN last_callback_at timestamptz,
  ADD COLUMN last_accepted_at timestamptz,
  -- The service messages that WhatsApp accepted in the month.
  ADD COLUMN service_month date,
  ADD COLUMN service_messages bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT whatsapp_profiles_verification_state_check
    CHECK (verification_state IN ('pending', 'verified', 'failed')) NOT VALID;
