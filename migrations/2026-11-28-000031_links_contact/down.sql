ALTER TABLE links DROP COLUMN contact_id, DROP COLUMN last_clicked_at;
