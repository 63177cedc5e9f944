-- Indexes for deletes that cascade from a contact or a folder.

-- Deleting a contact deletes its segment memberships.
CREATE INDEX segment_members_contact_id_idx ON segment_members (account_id, contact_id);

-- Deleting a folder keeps the campaigns and templates in it and clears their `folder_id`.
CREATE INDEX campaigns_folder_id_idx ON campaigns (account_id, folder_id) WHERE folder_id IS NOT NULL;
CREATE INDEX message_templates_folder_id_idx ON message_templates (account_id, folder_id) WHERE folder_id IS NOT NULL;
