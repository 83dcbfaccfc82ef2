-- Rows of tables that migrations made after format-1.sql was written.
-- 0004_tagged_run
INSERT INTO tagged_run VALUES (1, 8, '["db","web"]', 1800000002000);
-- 0005_incarnation
INSERT INTO incarnation VALUES (1, 's1', 'founded', 1800000002000, '1-2', 1);
INSERT INTO incarnation VALUES (2, 's2', 'overtaken', 1800000002000, '1-2', NULL);
INSERT INTO node_header VALUES (1, 2, '{"payload":"header","signatures":[{"key":"k","sig":"s"}]}');
-- What later versions keep beside what was kept: without it, it is not known.
UPDATE contact SET last_run = json_set(last_run, '$.root', '4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2');
-- 0008_health
UPDATE contact SET runs_heard = '{}';
INSERT INTO known_prefix VALUES ('10.0.0.0/24', 1800000005000);
