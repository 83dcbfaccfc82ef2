-- What proves a change of the control plane's feed to its node (IDN-9); NULL of what a node authors, and of what was
-- written before the fleet's trust document named a key for it.
ALTER TABLE object ADD COLUMN proof BLOB;
