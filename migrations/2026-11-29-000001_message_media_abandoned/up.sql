-- The claims of workers that did not finish. Their bytes may be in the file store, and the next worker deletes them. The
-- previous version does not use the column, and does not delete such bytes.
ALTER TABLE message_media ADD COLUMN abandoned uuid[] DEFAULT '{}'::uuid[] NOT NULL;
