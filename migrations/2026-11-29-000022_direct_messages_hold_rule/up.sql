-- The setting of the account that holds the message until `due_at`, and the last change of the settings by which it was
-- checked. A column of its own: the previous version does not know these reasons, and shows such a message as waiting.
-- `is_marketing`: whether it started as a marketing message. Null: it has not started, or the previous version started it.
ALTER TABLE direct_messages ADD COLUMN hold_rule text, ADD COLUMN held_settings_at timestamptz,
  ADD COLUMN is_marketing boolean;
