DROP TABLE contact_exports;
