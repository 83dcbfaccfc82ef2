-- What was heard of a node's runs in its check-ins, as JSON of a RunsHeard; NULL before the first that was noted.
ALTER TABLE contact ADD COLUMN runs_heard TEXT;

-- Address prefixes of which a node authenticated lately, and when last.
CREATE TABLE known_prefix (
    prefix TEXT PRIMARY KEY,
    authenticated INTEGER NOT NULL
) STRICT;
