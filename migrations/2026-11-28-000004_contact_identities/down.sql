DROP TABLE contact_identities;
