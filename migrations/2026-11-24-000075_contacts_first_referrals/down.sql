ALTER TABLE contacts DROP COLUMN first_referral_at, DROP COLUMN first_referral;
