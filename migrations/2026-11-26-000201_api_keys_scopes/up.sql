-- What a key may be used for, from where and until when, and the state of its notifications. Keys from before keep every
-- right of a member, from everywhere, without an end.
ALTER TABLE api_keys
  ADD COLUMN scopes text[] NOT NULL DEFAULT '{*}',
  ADD COLUMN expires_at timestamptz,
  ADD COLUMN allowed_cidrs text[] NOT NULL DEFAULT '{}',
  ADD COLUMN last_used_ip text,
  ADD COLUMN rotated_at timestamptz,
  ADD COLUMN previous_valid_until timestamptz,
  -- SHA-256 of the idempotency key of the last rotation.
  ADD COLUMN rotation_request bytea,
  -- The latest notification about `expires_at`: none, week, day or expired.
  ADD COLUMN expiry_notice text NOT NULL DEFAULT 'none',
  ADD COLUMN unused_notified_at timestamptz,
  -- The lease of the worker that writes the notifications.
  ADD COLUMN notice_lease_until timestamptz,
  ADD COLUMN version bigint NOT NULL DEFAULT 1;
