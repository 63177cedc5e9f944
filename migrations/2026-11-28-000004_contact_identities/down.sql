ALTER TABLE messages DROP COLUMN by_user_id;
ALTER TABLE direct_messages DROP COLUMN by_user_id;
ALTER TABLE campaign_sends DROP COLUMN by_user_id;
ALTER TABLE campaigns DROP COLUMN reach;
ALTER TABLE contacts DROP COLUMN same_person_as;
DROP TABLE contact_identities;
