-- What an account sets for all its messages. An account without a row has the defaults, and so has a null column.
CREATE TABLE account_settings (
  account_id uuid CONSTRAINT account_settings_pkey PRIMARY KEY
    CONSTRAINT account_settings_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  -- The name of a time zone.
  timezone text,
  quiet_hours jsonb,
  max_marketing_per_contact jsonb,
  hold_at_most_hours smallint,
  opt_out_words jsonb,
  -- Since when each of the words works, in seconds since 1970, by the word in capital letters.
  opt_out_words_since jsonb,
  opt_out_reply text,
  -- The user who set the reply, as whose message it is sent.
  opt_out_reply_by uuid,
  late_policy jsonb,
  cost_alerts jsonb,
  -- The last change of `timezone` and of the settings that hold messages.
  holds_changed_at timestamptz DEFAULT now() NOT NULL,
  updated_at timestamptz NOT NULL
);
SELECT make_tenant_table('account_settings');
SELECT set_storage('account_settings', 'entity');
GRANT SELECT, INSERT, UPDATE ON account_settings TO recado_tenant;
