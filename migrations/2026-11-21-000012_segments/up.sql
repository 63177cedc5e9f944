-- What leaves a segment or a folder is found by it.

-- A contact that goes takes its memberships along.
CREATE INDEX segment_members_contact_id_idx ON segment_members (account_id, contact_id);

-- A folder that goes leaves what lay in it.
CREATE INDEX campaigns_folder_id_idx ON campaigns (account_id, folder_id) WHERE folder_id IS NOT NULL;
CREATE INDEX message_templates_folder_id_idx ON message_templates (account_id, folder_id) WHERE folder_id IS NOT NULL;
