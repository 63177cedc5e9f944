-- When the user last ended all sessions. A token that was issued in the second of this time or before is refused.
ALTER TABLE users ADD COLUMN sessions_valid_from timestamptz;
