-- The cleared ids are set again with the contacts' next messages.
SELECT 1;
