DROP TABLE direct_message_queues;
DROP TABLE direct_messages;
