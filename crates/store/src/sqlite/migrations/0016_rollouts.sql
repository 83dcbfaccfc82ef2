-- Rollouts: a release on its way to the nodes of its channel (ROL-1).
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

-- The nodes of a rollout. A node that was removed is known here until the rollout says that it goes.
CREATE TABLE rollout_member (
    rollout INTEGER NOT NULL REFERENCES rollout (no) ON DELETE CASCADE,
    node TEXT NOT NULL,
    -- The release that it had before, which is kept for it.
    before INTEGER,
    record TEXT NOT NULL,
    PRIMARY KEY (rollout, node)
) STRICT, WITHOUT ROWID;
CREATE INDEX rollout_member_before ON rollout_member (before);

-- Budgets of nodes in flight, over all rollouts: each slot that is taken raises the version.
CREATE TABLE rollout_budget (
    budget TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
