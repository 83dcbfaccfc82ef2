-- The id of the key of the CA that issued a node's newest certificate; NULL where a control plane issued it that knew one
-- CA alone.
ALTER TABLE node ADD COLUMN cert_authority TEXT;
