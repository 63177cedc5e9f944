-- The name of the contact's time zone. Null: it follows from the phone number, else it is the account's.
ALTER TABLE contacts ADD COLUMN time_zone text;
