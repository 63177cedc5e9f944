-- Messages are partitioned by the month in which they were written, so that a month is removed by dropping its
-- partition, and lists and exports, which are sorted by that time, read one month after the other.

DROP TABLE messages;

-- Inbound messages and replies. Messages of campaigns are rows of campaign_sends. No foreign key to conversations: it
-- would lock that table while a month is dropped. Every writer of a message has locked or inserted its conversation.
CREATE TABLE messages (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  conversation_id uuid NOT NULL,
  direction text NOT NULL CONSTRAINT messages_direction_check CHECK (direction IN ('inbound', 'outbound')),
  type text NOT NULL,
  text text,
  status text NOT NULL
    CONSTRAINT messages_status_check CHECK (status IN ('received', 'pending', 'sent', 'delivered', 'read', 'failed')),
  wa_message_id text,
  -- Media ids, a location, the id of the message that it replies to.
  payload jsonb NOT NULL DEFAULT '{}',
  error_message text,
  -- The time at which the message was written, and the time at which it was stored here.
  created_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  -- The ad or post that led to the message.
  referral jsonb,
  -- The price from WhatsApp's status updates, as in `campaign_sends.pricing`.
  pricing jsonb,
  CONSTRAINT messages_pkey PRIMARY KEY (account_id, id, created_at),
  -- WhatsApp repeats a message with the same time, so this rejects it.
  CONSTRAINT messages_wa_message_id_unique UNIQUE (account_id, wa_message_id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX messages_created_at_idx ON messages (account_id, conversation_id, created_at DESC, id DESC);
CREATE INDEX messages_written_idx ON messages (account_id, created_at DESC, id DESC);
CREATE INDEX messages_pending_idx ON messages (recorded_at) WHERE status = 'pending';
SELECT make_tenant_table('messages');
GRANT SELECT, INSERT, UPDATE ON messages TO recado_tenant;
