-- Until when all messages of a held queue are kept back. The queue is due earlier if one of them expires earlier.
ALTER TABLE direct_message_queues ADD COLUMN held_until timestamptz;
