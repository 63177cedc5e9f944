ALTER TABLE messages DROP COLUMN referral;
