-- Signed lists that count (ENR-3, IDN-6): the allowlist of tokens and the revocations. `seq` only rises.
CREATE TABLE signed_list (
    name TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- Why hosts could not join, by their own word (ENR-4); a row is never rewritten, the oldest give way.
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
CREATE INDEX failed_join_nonce ON failed_join (nonce);
CREATE TRIGGER failed_join_is_never_changed BEFORE UPDATE ON failed_join BEGIN
    SELECT RAISE(ABORT, 'what a host said of a failed join is never rewritten');
END;
