DROP TABLE given_cost_alerts;
DROP TABLE cost_months;
