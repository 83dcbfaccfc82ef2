-- What the last comparison of a node's sets came to, as JSON of a SyncCondition; NULL when they
-- were not compared to the end.
ALTER TABLE sync ADD COLUMN condition TEXT;
