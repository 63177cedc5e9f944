-- Conditions on metrics look up the latest events of one contact.
-- safe: a partitioned table has no concurrent index, and before the first release its partitions are empty
CREATE INDEX metric_events_contact_id_idx ON metric_events (account_id, contact_id, metric_name, occurred_at)
  WHERE contact_id IS NOT NULL;
