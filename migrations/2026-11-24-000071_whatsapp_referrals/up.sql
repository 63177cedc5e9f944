-- The ad or post that a message came from, and the first one of each contact.

ALTER TABLE messages ADD COLUMN referral jsonb;

ALTER TABLE contacts
  ADD COLUMN first_referral jsonb,
  -- When the message with it was written: an older one may come later.
  ADD COLUMN first_referral_at timestamptz;
