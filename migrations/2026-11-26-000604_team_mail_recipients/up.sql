-- Internal: which addresses were sent mail in the last day, for the limits on mail to one address. The address is a
-- keyed hash, which nobody can revert without `APP_SECRET`.
CREATE TABLE mail_recipients (
  address_hash bytea NOT NULL,
  mail_id uuid NOT NULL,
  account_id uuid NOT NULL,
  mailed_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT mail_recipients_pkey PRIMARY KEY (address_hash, mail_id)
);
CREATE INDEX mail_recipients_mailed_at_idx ON mail_recipients (mailed_at);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX mail_recipients_account_id_idx ON mail_recipients (account_id);
