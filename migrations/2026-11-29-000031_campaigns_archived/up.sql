-- From `archiving_at` on, no send of the campaign changes; from `archived_at` on, its sends are in a file.
ALTER TABLE campaigns ADD COLUMN archiving_at timestamptz, ADD COLUMN archived_at timestamptz;
