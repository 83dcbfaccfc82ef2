-- `sort`: 0 any, 1 a run, 2 of an action; each sort is kept apart from the others.
ALTER TABLE fact RENAME COLUMN is_run TO sort;
ALTER TABLE fact ADD COLUMN action TEXT;
ALTER TABLE fact ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
CREATE INDEX fact_of_action ON fact (node, action, id, ended) WHERE action IS NOT NULL;

-- The two sets of a node: the feed authored here (side 0), the replica (side 1).
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
) STRICT;

-- Kinds with namespaces of a node's objects, as numbers.
CREATE TABLE section (
    no INTEGER PRIMARY KEY,
    node INTEGER NOT NULL REFERENCES node ON DELETE CASCADE,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    UNIQUE (node, kind, namespace)
) STRICT;

-- Without references: they would cost as much as the rest of a write. A node with a row
-- in `sync` is not deleted, and that row goes after these. A row without a body is a
-- tombstone.
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
    body INTEGER,
    PRIMARY KEY (node, side, section, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX object_gone ON object (node, rev) WHERE body IS NULL;

-- Apart, so that a listing does not read it, and so that several fit into a page.
CREATE TABLE object_body (
    no INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
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
CREATE INDEX task_open ON task (no) WHERE finished IS NULL;

CREATE TABLE task_node (
    task INTEGER NOT NULL REFERENCES task ON DELETE CASCADE,
    node TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (task, node)
) STRICT, WITHOUT ROWID;
