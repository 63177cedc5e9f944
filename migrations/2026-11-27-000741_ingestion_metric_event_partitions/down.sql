DROP TABLE metric_events, metric_event_keys;
