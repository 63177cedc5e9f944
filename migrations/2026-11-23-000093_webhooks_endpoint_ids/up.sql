-- Directory: a caller of an inbound endpoint sends only the endpoint's id, so ids are unique across accounts.
CREATE TABLE webhook_endpoint_ids (
  id uuid CONSTRAINT webhook_endpoint_ids_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  CONSTRAINT webhook_endpoint_ids_endpoint_fkey FOREIGN KEY (account_id, id)
    REFERENCES webhook_endpoints (account_id, id) ON DELETE CASCADE
);
CREATE INDEX webhook_endpoint_ids_endpoint_idx ON webhook_endpoint_ids (account_id, id);
SELECT make_tenant_table('webhook_endpoint_ids');
INSERT INTO webhook_endpoint_ids (id, account_id) SELECT id, account_id FROM webhook_endpoints;
