-- How many bytes the bodies of a node's facts are together.
ALTER TABLE contact ADD COLUMN fact_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE contact SET fact_bytes = coalesce(
    (SELECT sum(octet_length(body)) FROM fact WHERE fact.node = contact.node), 0);
