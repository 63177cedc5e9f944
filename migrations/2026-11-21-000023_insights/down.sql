DROP TABLE rfm_counts;
DROP TABLE rfm_calculations;
DROP INDEX messages_written_idx;
DROP INDEX campaigns_executed_at_idx;
DROP TABLE conversation_counts;
DROP TABLE contact_counts;
DROP TABLE message_rollups;
DROP INDEX campaign_counters_created_at_idx;
