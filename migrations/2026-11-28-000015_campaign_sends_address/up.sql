-- Whether the message was addressed by user id.
ALTER TABLE campaign_sends ADD COLUMN by_user_id boolean NOT NULL DEFAULT false;
