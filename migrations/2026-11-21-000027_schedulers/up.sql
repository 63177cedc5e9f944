-- Who let a campaign start by itself; its start is theirs. Where they did it in support mode, the address of the platform
-- administrator. Null: scheduled before this was kept, or not at all.

ALTER TABLE campaigns ADD COLUMN scheduled_by uuid;
ALTER TABLE campaigns ADD COLUMN scheduled_support_admin text;
