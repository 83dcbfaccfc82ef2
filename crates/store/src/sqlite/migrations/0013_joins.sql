-- By whose word a node's key is that host's: none, operator, token or declared (ENR-9).
ALTER TABLE node ADD COLUMN key_confirmation TEXT NOT NULL DEFAULT 'none';
UPDATE node SET key_confirmation = 'token' WHERE key_confirmed = 1;
ALTER TABLE node DROP COLUMN key_confirmed;
-- When it was noticed that two hosts hold the node's key; NULL while one does, or an operator decided (IDN-10).
ALTER TABLE node ADD COLUMN copied INTEGER;
-- What the node's agent is and can do, as JSON of AgentCapabilities; NULL before it said so (ENR-5).
ALTER TABLE node ADD COLUMN capabilities TEXT;

-- Keys that asked to join and are no nodes.
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

-- Keys that a group token let in, or had wait: each is one of its uses.
CREATE TABLE group_use (
    nonce TEXT NOT NULL,
    node_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (nonce, node_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_use_expiry ON group_use (expires_at);
