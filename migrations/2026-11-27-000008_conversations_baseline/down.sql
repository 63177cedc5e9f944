DROP TABLE message_rollups;
DROP TABLE conversation_counts;
DROP TABLE messages;
DROP TABLE conversations;
