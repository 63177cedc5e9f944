-- The ad or post that the first of a contact's messages came from.

ALTER TABLE contacts
  ADD COLUMN first_referral jsonb,
  -- When the message with it was written: an older one may come later.
  ADD COLUMN first_referral_at timestamptz;
