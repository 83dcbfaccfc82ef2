-- When the node's certificate ends; NULL where no session is opened with it, as a proxy ends TLS. Those of
-- before are of 30 days; who called later than that is behind such a proxy.
ALTER TABLE node ADD COLUMN cert_not_after INTEGER;
UPDATE node SET cert_not_after = cert_not_before + 2592000000 WHERE NOT EXISTS (
    SELECT 1 FROM contact WHERE contact.node = node.no AND contact.last_seen > node.cert_not_before + 2592000000);
