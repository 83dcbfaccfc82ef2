-- Since when a node's certificate counts that was renewed after the node enrolled last, in milliseconds since 1970; NULL
-- while it has the one of its enrollment. `cert_serial` and `cert_not_after` are the newest certificate's.
ALTER TABLE node ADD COLUMN cert_renewed INTEGER;
