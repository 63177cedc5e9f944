-- Without it, removing what contact_id refers to passes over all rows of the account (the check of the foreign key).
CREATE INDEX CONCURRENTLY metric_contacts_contact_id_idx ON metric_contacts (account_id, contact_id);
