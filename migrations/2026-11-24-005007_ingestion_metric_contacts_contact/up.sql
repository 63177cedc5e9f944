-- Without this index, deleting a row that `contact_id` references scans the account's rows (foreign key check).
CREATE INDEX CONCURRENTLY metric_contacts_contact_id_idx ON metric_contacts (account_id, contact_id);
