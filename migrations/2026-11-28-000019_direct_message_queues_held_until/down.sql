ALTER TABLE direct_message_queues DROP COLUMN held_until;
