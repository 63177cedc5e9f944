DROP TABLE order_items, orders, order_keys;
