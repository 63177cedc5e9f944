-- The ad or post that a message came from.

ALTER TABLE messages ADD COLUMN referral jsonb;
