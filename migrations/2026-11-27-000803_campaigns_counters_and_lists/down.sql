DROP INDEX contacts_deleted_idx;
CREATE INDEX contacts_deleted_idx ON contacts (account_id, id) WHERE deleted_at IS NOT NULL;
REVOKE DELETE ON campaign_counter_slots FROM recado_tenant;
DROP INDEX campaign_counter_slots_unfolded_idx;
