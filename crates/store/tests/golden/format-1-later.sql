-- Rows of tables that migrations made after format-1.sql was written.
-- 0004_tagged_run
INSERT INTO tagged_run VALUES (1, 8, '["db","web"]', 1800000002000);
