DROP INDEX notifications_unread_idx, notifications_seq_idx, notifications_seq_unique;
ALTER TABLE notifications DROP COLUMN seq;
DROP TABLE messages, conversations;
DROP INDEX contacts_wa_id_idx;
ALTER TABLE contacts DROP COLUMN consent_at;
