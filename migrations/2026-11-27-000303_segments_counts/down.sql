DROP TABLE segment_counts;
