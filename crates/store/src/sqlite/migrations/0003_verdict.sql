-- What the last comparison of a node's sets came to: NULL none, '' equal, else why they
-- differ for good.
ALTER TABLE sync ADD COLUMN verdict TEXT;
