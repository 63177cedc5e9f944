-- The ad or post that led to the message.

ALTER TABLE messages ADD COLUMN referral jsonb;
