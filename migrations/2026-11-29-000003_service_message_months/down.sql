DROP TABLE service_message_months;
