-- Team invites, and the queue of outgoing mail.

CREATE TABLE team_invites (
  account_id uuid NOT NULL CONSTRAINT team_invites_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  email text NOT NULL,
  role text NOT NULL CONSTRAINT team_invites_role_check CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
  status text NOT NULL DEFAULT 'pending' CONSTRAINT team_invites_status_check
    CHECK (status IN ('pending', 'accepted', 'expired', 'revoked')),
  invited_by uuid NOT NULL,
  expires_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT team_invites_pkey PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX team_invites_pending_unique ON team_invites (account_id, lower(email)) WHERE status = 'pending';
SELECT make_tenant_table('team_invites');

-- Directory: an invite token does not name its account. `token_hash` is the SHA-256 of the token. The row is deleted
-- when the invite is accepted, revoked or expired.
CREATE TABLE invite_tokens (
  token_hash bytea CONSTRAINT invite_tokens_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  invite_id uuid NOT NULL
);
CREATE INDEX invite_tokens_invite_id_idx ON invite_tokens (account_id, invite_id);

-- Internal: the queue of outgoing mail. The content holds a token, so it is sealed with the server's key and deleted
-- when the mail is sent.
CREATE TABLE outgoing_mail (
  id uuid CONSTRAINT outgoing_mail_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  content bytea NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outgoing_mail_due_at_idx ON outgoing_mail (due_at);
