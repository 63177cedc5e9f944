ALTER TABLE contacts ADD COLUMN erased_at timestamptz;
