-- Inbound events of numbers that some profile has without being verified. They belong to no account until a verified
-- profile takes them, so only the owner role reads them. Removed after seven days.
CREATE TABLE whatsapp_held_messages (
  phone_number_id text NOT NULL,
  -- A hash of the number and of WhatsApp's message id: a number holds each message once.
  key bytea NOT NULL,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  -- Sealed with the server's key.
  event bytea NOT NULL,
  -- Whether a verified profile has received it.
  given boolean NOT NULL DEFAULT false,
  received_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT whatsapp_held_messages_pkey PRIMARY KEY (key, phone_number_id)
);
CREATE INDEX whatsapp_held_messages_seq_idx ON whatsapp_held_messages (phone_number_id, seq);
CREATE INDEX whatsapp_held_messages_received_at_idx ON whatsapp_held_messages (received_at);
