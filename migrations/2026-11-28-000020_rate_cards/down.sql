DROP TABLE rate_card_rows;
DROP TABLE rate_cards;
