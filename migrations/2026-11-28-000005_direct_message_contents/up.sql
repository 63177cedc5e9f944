-- What a conversation shows of a direct message.

ALTER TABLE direct_messages
  -- The text of a template with the values of the message, set when it leaves.
  ADD COLUMN text text,
  -- The account's file that the message sends.
  ADD COLUMN media_id uuid;
