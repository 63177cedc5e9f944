-- What the budget of the campaign has reserved for the message. Null: nothing, or nothing any more.
ALTER TABLE campaign_sends ADD COLUMN reserved_amount numeric;
