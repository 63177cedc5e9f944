ALTER TABLE direct_messages
  DROP COLUMN media_id,
  DROP COLUMN text;
