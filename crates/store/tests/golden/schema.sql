CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    entry TEXT NOT NULL,
    at INTEGER GENERATED ALWAYS AS (CAST(round(unixepoch(entry ->> '$.at', 'subsec') * 1000) AS INTEGER)) VIRTUAL,
    author TEXT GENERATED ALWAYS AS (entry ->> '$.by') VIRTUAL,
    request TEXT GENERATED ALWAYS AS (entry ->> '$.request') VIRTUAL,
    refused TEXT GENERATED ALWAYS AS (entry ->> '$.refused') VIRTUAL
) STRICT;
CREATE TABLE audit_node (
    hostname TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES audit (number),
    PRIMARY KEY (hostname, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE beacon (
    seq INTEGER NOT NULL REFERENCES release ON DELETE CASCADE,
    channel TEXT NOT NULL,
    document TEXT NOT NULL,
    -- When it was signed.
    at INTEGER NOT NULL,
    PRIMARY KEY (seq, channel)
) STRICT, WITHOUT ROWID;
CREATE TABLE chunk (
    no INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    height INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE contact (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    last_seen INTEGER,
    promised_secs INTEGER NOT NULL DEFAULT 0,
    held_channel TEXT,
    held_seq INTEGER,
    held_header BLOB,
    held_root BLOB,
    run_at INTEGER,
    run_outcome BLOB,
    streak INTEGER NOT NULL DEFAULT 0,
    last_run TEXT,
    log INTEGER REFERENCES log ON DELETE SET NULL
, fact_bytes INTEGER NOT NULL DEFAULT 0, runs_heard TEXT, conditions TEXT, trust_version INTEGER) STRICT;
CREATE TABLE content (
    no INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE epoch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    opened INTEGER NOT NULL
) STRICT;
CREATE TABLE fact (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    log INTEGER NOT NULL REFERENCES log ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    received INTEGER NOT NULL,
    sort INTEGER NOT NULL,
    body TEXT NOT NULL, action TEXT, ended INTEGER NOT NULL DEFAULT 0,
    UNIQUE (log, seq)
) STRICT;
CREATE TABLE failed_join (
    number INTEGER PRIMARY KEY,
    received INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    hostname TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    failure TEXT NOT NULL CHECK (failure IN ('TrustError', 'EnrollmentFailed')),
    code TEXT,
    message TEXT NOT NULL,
    agent TEXT
) STRICT;
CREATE TABLE fleet (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE TABLE group_use (
    nonce TEXT NOT NULL,
    node_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (nonce, node_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE head (
    channel TEXT PRIMARY KEY,
    seq INTEGER NOT NULL REFERENCES release,
    header TEXT NOT NULL,
    selection BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE incarnation (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    cause TEXT NOT NULL,
    began INTEGER NOT NULL,
    file TEXT,
    published INTEGER
) STRICT;
CREATE TABLE known_prefix (
    prefix TEXT PRIMARY KEY,
    authenticated INTEGER NOT NULL
) STRICT;
CREATE TABLE log (
    no INTEGER PRIMARY KEY,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    incarnation TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    UNIQUE (node, incarnation)
) STRICT;
CREATE TABLE migration (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;
CREATE TABLE node (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    hostname TEXT NOT NULL,
    public_key TEXT NOT NULL,
    enrolled INTEGER NOT NULL,
    removed INTEGER,
    cert_not_before INTEGER NOT NULL,
    cert_serial TEXT NOT NULL,
    cert_used INTEGER NOT NULL,
    declared TEXT NOT NULL,
    nonce TEXT NOT NULL
, cert_not_after INTEGER, cert_renewed INTEGER, key_confirmation TEXT NOT NULL DEFAULT 'none', copied INTEGER, capabilities TEXT, cert_authority TEXT) STRICT;
CREATE TABLE node_header (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    header TEXT NOT NULL
) STRICT;
CREATE TABLE nonce (
    nonce TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE object (
    node INTEGER NOT NULL,
    side INTEGER NOT NULL,
    section INTEGER NOT NULL,
    name TEXT NOT NULL,
    rev INTEGER NOT NULL,
    born INTEGER NOT NULL,
    uid TEXT NOT NULL,
    digest BLOB,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    trace TEXT,
    body INTEGER, proof BLOB,
    PRIMARY KEY (node, side, section, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE object_body (
    no INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
CREATE TABLE operator (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    nodes TEXT,
    created INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    revoked INTEGER,
    revoked_by TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE operator_credential (
    id TEXT PRIMARY KEY,
    operator TEXT NOT NULL REFERENCES operator (name),
    kind TEXT NOT NULL CHECK (kind IN ('certificate', 'token')),
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE pending_join (
    node_id TEXT PRIMARY KEY,
    hostname TEXT NOT NULL,
    public_key TEXT NOT NULL,
    address TEXT NOT NULL,
    prefix TEXT NOT NULL,
    nonce TEXT,
    since INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'approved', 'denied')),
    decided INTEGER,
    decided_by TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE push (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    number INTEGER NOT NULL,
    asked INTEGER NOT NULL
) STRICT;
CREATE TABLE release (
    seq INTEGER PRIMARY KEY,
    ref_label TEXT NOT NULL,
    created INTEGER NOT NULL,
    selection BLOB NOT NULL,
    headers TEXT NOT NULL,
    summary TEXT NOT NULL
) STRICT;
CREATE TABLE rollout (
    no INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    seq INTEGER NOT NULL,
    -- What the wire calls it.
    id TEXT NOT NULL UNIQUE,
    -- Raised with every change: a decision that was made by another version is not stored.
    version INTEGER NOT NULL,
    -- Nothing but the document is left of it.
    pruned INTEGER NOT NULL CHECK (pruned IN (0, 1)),
    document TEXT NOT NULL,
    UNIQUE (channel, seq)
) STRICT;
CREATE TABLE rollout_budget (
    budget TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE rollout_member (
    rollout INTEGER NOT NULL REFERENCES rollout (no) ON DELETE CASCADE,
    node TEXT NOT NULL,
    -- The release that it had before, which is kept for it.
    before INTEGER,
    record TEXT NOT NULL,
    PRIMARY KEY (rollout, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE section (
    no INTEGER PRIMARY KEY,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    UNIQUE (node, kind, namespace)
) STRICT;
CREATE TABLE seen (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    received INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE TABLE signed_list (
    name TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sync (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    incarnation TEXT,
    head INTEGER NOT NULL,
    compacted INTEGER NOT NULL,
    theirs_incarnation TEXT,
    theirs_rev INTEGER NOT NULL,
    -- Where the replica stands within a pass of the source.
    theirs_pass TEXT,
    acked_incarnation TEXT,
    acked_rev INTEGER NOT NULL,
    our_objects INTEGER NOT NULL,
    their_objects INTEGER NOT NULL,
    changed INTEGER NOT NULL
, condition TEXT) STRICT;
CREATE TABLE tagged_run (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    number INTEGER NOT NULL,
    tags TEXT NOT NULL,
    asked INTEGER NOT NULL
) STRICT;
CREATE TABLE task (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    created INTEGER NOT NULL,
    by TEXT NOT NULL,
    finished INTEGER,
    document TEXT NOT NULL
) STRICT;
CREATE TABLE task_node (
    task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
    node TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (task, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE traits (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    digest BLOB NOT NULL,
    received INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is append only');
END;
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is append only');
END;
CREATE TRIGGER failed_join_is_never_changed BEFORE UPDATE ON failed_join BEGIN
    SELECT RAISE(ABORT, 'what a host said of a failed join is never rewritten');
END;
CREATE INDEX audit_request ON audit (request);
CREATE INDEX contact_log ON contact (log);
CREATE INDEX fact_of_action ON fact (node, action, id, ended) WHERE action IS NOT NULL;
CREATE INDEX fact_of_node ON fact (node, id, sort);
CREATE INDEX failed_join_nonce ON failed_join (nonce);
CREATE INDEX group_use_expiry ON group_use (expires_at);
CREATE INDEX head_seq ON head (seq);
CREATE UNIQUE INDEX node_active_hostname ON node (hostname) WHERE removed IS NULL;
CREATE INDEX node_removed ON node (removed) WHERE removed IS NOT NULL;
CREATE INDEX nonce_expiry ON nonce (expires_at);
CREATE INDEX object_gone ON object (node, rev) WHERE body IS NULL;
CREATE INDEX operator_credential_of ON operator_credential (operator);
CREATE INDEX rollout_member_before ON rollout_member (before);
CREATE INDEX task_open ON task (no) WHERE finished IS NULL;
INSERT INTO migration VALUES (0, '0001_first', '102c5265d93973d89d83deaf469e49a64b576fdb0448df8bd98b86f112e455c3');
INSERT INTO migration VALUES (1, '0002_sync', '3a41b46f483f81e19cf4bab5159e0e260ddfca3bb86580a66be84afa68d7afec');
INSERT INTO migration VALUES (2, '0003_condition', '38067f8dded53f5bd2ce86c2ee0105a545334a7d9c40407cc77a454f26be474d');
INSERT INTO migration VALUES (3, '0004_tagged_run', 'b7ed6baf675622499f838ef017a502d21a4e4c92c6cbbbac43fc5e1cc9ac958f');
INSERT INTO migration VALUES (4, '0005_incarnation', 'a11595b6ce6286fb3583739edf22932c2d0ba7957a97852bbf112a66d763e147');
INSERT INTO migration VALUES (5, '0006_bytes', '6282f9c56297a9e9d753f5971b7082c0f36374bebdadce7fd81f4b40727025c0');
INSERT INTO migration VALUES (6, '0007_certificates', '57d88e91813b6eaa4eb3f0a7193dd641f3f7808df823a8f80f3c7684445efda5');
INSERT INTO migration VALUES (7, '0008_health', '4b49cba8d3bb974c94dffe1120572b34cda2568a3d139a53281483acc72ddde8');
INSERT INTO migration VALUES (8, '0009_renewal', 'ee977a78b079b33032d0b43dd42cfe478233318d294c18bac318be82493583c0');
INSERT INTO migration VALUES (9, '0010_conditions', 'a5ded7a114a6c6d3e8fccadf8902c8000694c6928325c25552ec22dd29a12fe0');
INSERT INTO migration VALUES (10, '0011_operators_and_audit', 'cb6174731513ed4d38f8813cfe3166936d2e2aabc3bf1a7bc5ce4f0d43280ff9');
INSERT INTO migration VALUES (11, '0012_signed_lists', '760f217260aac73a4b7781336322c7576fc936506aaffca46592f61a59600a57');
INSERT INTO migration VALUES (12, '0013_joins', 'd354d74adf7295a2a644c8ad0f88be8230261d0bc4fd0b8b07c6b7dbb9abc1c4');
INSERT INTO migration VALUES (13, '0014_proofs', '8291ce08450092601c393f8c9054847a7604759f77121317775141fe4a70c97e');
INSERT INTO migration VALUES (14, '0015_certificate_authority', 'cc829d7cd9b9e0e74ab0d1d6dd8e17972fc403d6c2e52382fb78bfc0dfabf6e6');
INSERT INTO migration VALUES (15, '0016_rollouts', '80c11da1f59ca58ff24a04d84752aeb271b622f2657509fb612143310a9e4b60');
INSERT INTO migration VALUES (16, '0017_beacons', '55985de69da83c6297d1fd00a37d2246679cb6690e808ab2e39188ab8e7759a7');
