DROP TABLE folders;
DROP TABLE contact_rfm;
DROP TABLE segment_members;
DROP TABLE segments;
DROP TABLE contact_tags;
DROP TABLE tags;
DROP TABLE contacts;
