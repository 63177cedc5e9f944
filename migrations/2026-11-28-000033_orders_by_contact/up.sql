-- Conditions on orders look up those of one contact.
-- safe: a partitioned table has no concurrent index, and before the first release its partitions are empty
CREATE INDEX orders_contact_id_idx ON orders (account_id, contact_id) WHERE contact_id IS NOT NULL;
