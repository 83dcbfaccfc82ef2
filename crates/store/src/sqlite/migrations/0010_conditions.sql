-- What the node said in its last check-in is the matter, as JSON of NodeConditions; NULL while nothing is.
ALTER TABLE contact ADD COLUMN conditions TEXT;
-- The version of the trust document that it held then; NULL before one was heard.
ALTER TABLE contact ADD COLUMN trust_version INTEGER;
