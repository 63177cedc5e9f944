-- Without it, removing what profile_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY campaigns_profile_id_idx ON campaigns (account_id, profile_id) WHERE profile_id IS NOT NULL;
