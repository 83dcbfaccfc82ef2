-- The request for a run by tag that a node has not confirmed; `tags` is a JSON array of its tags.
CREATE TABLE tagged_run (
    node INTEGER PRIMARY KEY REFERENCES node ON DELETE CASCADE,
    number INTEGER NOT NULL,
    tags TEXT NOT NULL,
    asked INTEGER NOT NULL
) STRICT;
