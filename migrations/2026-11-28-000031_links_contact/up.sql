-- A link may belong to one contact: its clicks are the contact's.
ALTER TABLE links ADD COLUMN contact_id uuid, ADD COLUMN last_clicked_at timestamptz;
