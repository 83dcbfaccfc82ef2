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
-- 0014_operators_and_audit
INSERT INTO operator VALUES ('ann', 'operator', '@eu', 1800000003000, 'operator', NULL, NULL);
INSERT INTO operator_credential VALUES ('c1', 'ann', 'token', 1800000003000, 1800000009000);
INSERT INTO audit VALUES (1, x'652a2e6a681789f80daea09f02bd7381b99a5063700ea20c415b4261260142c0', '{"at":"2027-01-15T08:00:03Z","before":"0000000000000000000000000000000000000000000000000000000000000000","by":"ann","nodeCount":1,"nodes":["web-1"],"number":1,"operation":"POST /v1/tasks","request":"r-1","what":"task t-1"}');
INSERT INTO audit_node VALUES ('web-1', 1);
-- 0012_signed_lists
INSERT INTO signed_list VALUES ('revocations', 3, '{"payload":"revocations","signatures":[{"key":"k","sig":"s"}]}');
INSERT INTO failed_join VALUES (1, 1800000006000, 'nonce-9', 'web-9', 'SHA256:x', 'EnrollmentFailed', 'token-expired', 'it ended', '0.1.0');
-- 0013_joins
INSERT INTO group_use VALUES ('g', 'n-fb17e979bcc0987224483dfb04dbd0f0', 1800000009000);
INSERT INTO pending_join VALUES ('n-fb17e979bcc0987224483dfb04dbd0f0', 'host-3', 'ed25519:3', '10.0.0.9', '10.0.0.0/24', 'g', 1800000006000, 'denied', 1800000007000, 'ann');
-- 0015_certificate_authority
UPDATE node SET cert_authority = '00c0ffee00c0ffee';
-- 0016_rollouts
INSERT INTO rollout VALUES (1, 'stable', 41, 'stable@b8eaf681d4ade2c915029cd1386e5d710ec59df28cbac29041aaaaef5819bbea', 1, 0, '{"channel":"stable","seq":41,"id":"stable@b8eaf681d4ade2c915029cd1386e5d710ec59df28cbac29041aaaaef5819bbea","version":1,"header":"b8eaf681d4ade2c915029cd1386e5d710ec59df28cbac29041aaaaef5819bbea","published":"2027-01-15T08:00:00Z","state":"Opening","since":"2027-01-15T08:00:00Z","latest":"2027-01-15T08:00:00Z"}');
INSERT INTO rollout_member VALUES (1, 'n-07e50c3c1dff122cc392e28f424c7040', 40, '{"node":"n-07e50c3c1dff122cc392e28f424c7040","hostname":"h1.example.com","placement":{"wave":1},"before":40,"state":"Pending","since":"2027-01-15T08:00:00Z","cursor":{"taken":0}}');
INSERT INTO rollout_budget VALUES ('max=2 where *', 1);
