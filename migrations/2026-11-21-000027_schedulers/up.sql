-- The user who scheduled a campaign: the start is attributed to them. In support mode also the e-mail address of the
-- platform administrator. Null: scheduled before this column existed, or not scheduled.

ALTER TABLE campaigns ADD COLUMN scheduled_by uuid;
ALTER TABLE campaigns ADD COLUMN scheduled_support_admin text;
