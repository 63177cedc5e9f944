-- The ad or post that led to the contact's first message.

ALTER TABLE contacts
  ADD COLUMN first_referral jsonb,
  -- The time at which that message was written: an older message may arrive later.
  ADD COLUMN first_referral_at timestamptz;
