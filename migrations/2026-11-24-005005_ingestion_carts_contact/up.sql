-- Without it, removing what contact_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY carts_contact_id_idx ON carts (account_id, contact_id) WHERE contact_id IS NOT NULL;
