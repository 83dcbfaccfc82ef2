-- Operators, and what each proves itself with (OPS-5). `nodes` is the selector of the nodes that one may see and
-- change; NULL: the whole fleet. One who was revoked stays, without credentials, as the audit log names him.
CREATE TABLE operator (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    nodes TEXT,
    created INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    revoked INTEGER,
    revoked_by TEXT
) STRICT, WITHOUT ROWID;
-- `id` of a certificate stands in its URI; that of a token is its SHA-256 in hex, never the token.
CREATE TABLE operator_credential (
    id TEXT PRIMARY KEY,
    operator TEXT NOT NULL REFERENCES operator (name),
    kind TEXT NOT NULL CHECK (kind IN ('certificate', 'token')),
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_credential_of ON operator_credential (operator);
-- The first admin, whose certificate the control plane makes beside itself: operator.json. It names no credential.
INSERT INTO operator (name, role, created, created_by) VALUES ('operator', 'admin', 0, 'muster server');

-- The audit log: each entry as canonical JSON, which names the digest of the entry before; append only.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    entry TEXT NOT NULL,
    at INTEGER GENERATED ALWAYS AS (CAST(round(unixepoch(entry ->> '$.at', 'subsec') * 1000) AS INTEGER)) VIRTUAL,
    author TEXT GENERATED ALWAYS AS (entry ->> '$.by') VIRTUAL,
    request TEXT GENERATED ALWAYS AS (entry ->> '$.request') VIRTUAL,
    refused TEXT GENERATED ALWAYS AS (entry ->> '$.refused') VIRTUAL
) STRICT;
CREATE INDEX audit_request ON audit (request);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is append only');
END;
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit log is append only');
END;
-- Entries by the nodes that they name; '*' for one that is of more nodes than it names. An index, and no proof.
CREATE TABLE audit_node (
    hostname TEXT NOT NULL,
    number INTEGER NOT NULL REFERENCES audit (number),
    PRIMARY KEY (hostname, number)
) STRICT, WITHOUT ROWID;
