DROP TABLE brand_contexts;
