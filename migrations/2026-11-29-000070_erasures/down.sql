DROP TABLE erased_opt_outs;
DROP TABLE erasures;
