-- WhatsApp's message ids, for status updates that do not name the send. Monthly partitions, kept for 45 days: status
-- updates come within days, and name the send since it was first sent with its id.
DROP TABLE sent_messages;
CREATE TABLE sent_messages (
  account_id uuid NOT NULL,
  wa_message_id text NOT NULL,
  send_id uuid NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT sent_messages_pkey PRIMARY KEY (account_id, wa_message_id, recorded_at)
) PARTITION BY RANGE (recorded_at);
SELECT make_tenant_table('sent_messages');
GRANT SELECT, INSERT ON sent_messages TO recado_tenant;
