-- Contacts of a period: an audience or a segment with `created_after` or `created_before` reads no other contacts.
CREATE INDEX contacts_created_at_idx ON contacts (account_id, created_at) WHERE deleted_at IS NULL;
