-- Times are milliseconds since 1970, digests 32 raw bytes, documents JSON text.

CREATE TABLE fleet (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT;

CREATE TABLE epoch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    opened INTEGER NOT NULL
) STRICT;

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
    key_confirmed INTEGER NOT NULL,
    declared TEXT NOT NULL,
    nonce TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX node_active_hostname ON node (hostname) WHERE removed IS NULL;
CREATE INDEX node_removed ON node (removed) WHERE removed IS NOT NULL;

CREATE TABLE nonce (
    nonce TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX nonce_expiry ON nonce (expires_at);

CREATE TABLE log (
    no INTEGER PRIMARY KEY,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    incarnation TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    UNIQUE (node, incarnation)
) STRICT;

CREATE TABLE fact (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    log INTEGER NOT NULL REFERENCES log ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    received INTEGER NOT NULL,
    is_run INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (log, seq)
) STRICT;
CREATE INDEX fact_of_node ON fact (node, id, is_run);

-- What changes at every contact, apart from the rest of the node.
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
) STRICT;
CREATE INDEX contact_log ON contact (log);

CREATE TABLE push (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    number INTEGER NOT NULL,
    asked INTEGER NOT NULL
) STRICT;

CREATE TABLE traits (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    digest BLOB NOT NULL,
    received INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

-- The newest document of type `seen` that the node signed.
CREATE TABLE seen (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    received INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;

-- `touched`: put, or reported as present.
CREATE TABLE chunk (
    no INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    height INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE content (
    no INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE release (
    seq INTEGER PRIMARY KEY,
    ref_label TEXT NOT NULL,
    created INTEGER NOT NULL,
    selection BLOB NOT NULL,
    headers TEXT NOT NULL,
    summary TEXT NOT NULL
) STRICT;

CREATE TABLE head (
    channel TEXT PRIMARY KEY,
    seq INTEGER NOT NULL REFERENCES release,
    header TEXT NOT NULL,
    beacon TEXT,
    beacon_at INTEGER,
    selection BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX head_seq ON head (seq);
