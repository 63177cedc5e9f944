DROP INDEX notifications_unread_idx, notifications_place_idx, notifications_place_unique;
ALTER TABLE notifications DROP COLUMN place;
DROP TABLE messages, conversations;
DROP INDEX contacts_wa_id_idx;
ALTER TABLE contacts DROP COLUMN consent_at;
