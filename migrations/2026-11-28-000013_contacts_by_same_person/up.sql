-- The deletion of a contact finds the contacts that name it.
CREATE INDEX CONCURRENTLY contacts_same_person_as_idx ON contacts (account_id, same_person_as)
  WHERE same_person_as IS NOT NULL;
