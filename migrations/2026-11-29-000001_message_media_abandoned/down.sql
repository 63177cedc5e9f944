ALTER TABLE message_media DROP COLUMN abandoned;
