-- The free-form messages that WhatsApp accepted from a number, by calendar month in UTC.
CREATE TABLE service_message_months (
  account_id uuid NOT NULL,
  profile_id uuid NOT NULL,
  -- The first day.
  month date NOT NULL,
  messages bigint NOT NULL,
  CONSTRAINT service_message_months_pkey PRIMARY KEY (account_id, profile_id, month),
  CONSTRAINT service_message_months_profile_id_fkey FOREIGN KEY (account_id, profile_id)
    REFERENCES whatsapp_profiles (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('service_message_months');
SELECT set_storage('service_message_months', 'counter');
GRANT SELECT, INSERT, UPDATE ON service_message_months TO recado_tenant;

INSERT INTO service_message_months (account_id, profile_id, month, messages)
SELECT account_id, id, service_month, service_messages FROM whatsapp_profiles
WHERE service_month IS NOT NULL AND service_messages > 0;
