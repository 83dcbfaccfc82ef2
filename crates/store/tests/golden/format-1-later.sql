-- Rows of tables that migrations made after format-1.sql was written.
-- 0004_tagged_run
INSERT INTO tagged_run VALUES (1, 8, '["db","web"]', 1800000002000);
-- What later versions keep beside what was kept: without it, it is not known.
UPDATE contact SET last_run = json_set(last_run, '$.root', '4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2');
