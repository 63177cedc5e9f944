DROP TABLE link_click_writers;
