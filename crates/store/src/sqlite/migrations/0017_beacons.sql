-- The newest beacon for each release of a channel (ROL-4): while a rollout is under way, nodes hold releases before the
-- newest. A beacon goes with its release.
CREATE TABLE beacon (
    seq INTEGER NOT NULL REFERENCES release ON DELETE CASCADE,
    channel TEXT NOT NULL,
    document TEXT NOT NULL,
    -- When it was signed.
    at INTEGER NOT NULL,
    PRIMARY KEY (seq, channel)
) STRICT, WITHOUT ROWID;
INSERT INTO beacon SELECT seq, channel, beacon, beacon_at FROM head WHERE beacon IS NOT NULL;
ALTER TABLE head DROP COLUMN beacon;
ALTER TABLE head DROP COLUMN beacon_at;
