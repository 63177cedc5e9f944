-- Leaves out the contacts for which a campaign of the account was started before.
ALTER TABLE campaigns ADD COLUMN newcomers_only boolean NOT NULL DEFAULT false;
