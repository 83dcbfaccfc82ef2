-- What the database was without going back: from its founding, or from where it is known to have, to the
-- next time. `cause`: founded, restored, copied, overtaken. `file` tells the database's file from a copy of
-- it; NULL until the first start on it. `published`: the first release that was committed in it.
CREATE TABLE incarnation (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    cause TEXT NOT NULL,
    began INTEGER NOT NULL,
    file TEXT,
    published INTEGER
) STRICT;

-- The header with the highest number that nodes hold and no release here has.
CREATE TABLE node_header (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    seq INTEGER NOT NULL,
    header TEXT NOT NULL
) STRICT;
