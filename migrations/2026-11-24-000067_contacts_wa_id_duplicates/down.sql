-- The ids are learned anew with the next messages.
SELECT 1;
