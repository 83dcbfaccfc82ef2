//! Where objects live for their users: a watched folder of manifests, an embedded store.
