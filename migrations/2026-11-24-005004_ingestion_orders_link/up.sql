-- Without it, removing what link_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY orders_link_id_idx ON orders (account_id, link_id) WHERE link_id IS NOT NULL;
