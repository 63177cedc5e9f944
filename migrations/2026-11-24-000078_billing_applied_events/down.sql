DROP TABLE applied_gateway_events;
