DROP TABLE audit_counts;
DROP TABLE audit_logs;
