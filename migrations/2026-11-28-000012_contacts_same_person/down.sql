ALTER TABLE contacts DROP COLUMN same_person_as;
