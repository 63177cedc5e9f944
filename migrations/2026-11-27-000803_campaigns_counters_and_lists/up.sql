-- Finds the counter slots that are added to slot 0 once their campaign has ended.
CREATE INDEX campaign_counter_slots_unfolded_idx ON campaign_counter_slots (account_id, campaign_id) WHERE slot > 0;
GRANT DELETE ON campaign_counter_slots TO recado_tenant;

-- A list of sends leaves out the contacts that were deleted since the start of the run.
DROP INDEX contacts_deleted_idx;
CREATE INDEX contacts_deleted_idx ON contacts (account_id, deleted_at) INCLUDE (id) WHERE deleted_at IS NOT NULL;
