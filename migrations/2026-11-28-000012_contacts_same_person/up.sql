-- Another contact that WhatsApp says is the same person. Both stay, and name each other. No foreign key: a deleted contact
-- stays in the table, and its deletion clears the names.
ALTER TABLE contacts ADD COLUMN same_person_as uuid;
