DROP TABLE sent_messages;
CREATE TABLE sent_messages (
  account_id uuid NOT NULL CONSTRAINT sent_messages_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  wa_message_id text NOT NULL,
  send_id uuid NOT NULL,
  CONSTRAINT sent_messages_pkey PRIMARY KEY (account_id, wa_message_id)
);
SELECT make_tenant_table('sent_messages');
GRANT SELECT, INSERT ON sent_messages TO recado_tenant;
