DROP TABLE metric_rollups;
DROP TABLE automation_rollups;
DROP TABLE cart_rollups;
DROP TABLE link_rollups;
DROP TABLE attribution_rollups;
DROP TABLE product_rollups;
DROP TABLE order_rollups;
