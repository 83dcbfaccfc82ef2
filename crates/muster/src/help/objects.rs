//! What is wrong with a manifest, and why an object is not taken by the other side.

/// Codes that `muster object` tells of a manifest before anything is sent.
pub const MANIFESTS: &[(&str, &str, &str)] = &[
    ("not-text", "a file that is no text", "Manifests are UTF-8. Save the file as UTF-8."),
    (
        "not-yaml",
        "a file that is no YAML",
        "The line says where the reader gave up. Mind indentation and colons.",
    ),
    ("not-json", "a file that is no JSON", "The line says where the reader gave up."),
    (
        "not-plain",
        "YAML that readers understand differently",
        "Tags, keys that are no texts, and numbers that JSON cannot hold are refused, so that every reader of a manifest sees the same. Write them plainly, or in quotes.",
    ),
    (
        "not-a-map",
        "a document that is no manifest",
        "A manifest is a map with `kind` and `metadata`. A list of manifests is one document each, with `---` between.",
    ),
    (
        "no-kind",
        "a manifest without `kind`",
        "An object is known by `kind`, `metadata.namespace` and `metadata.name`.",
    ),
    (
        "no-name",
        "a manifest without `metadata.name`, or no file name for it",
        "An object is known by `kind`, `metadata.namespace` and `metadata.name`. From a node it means that every file name for the object is taken in the folder: remove the files that stand there.",
    ),
    (
        "no-node",
        "a manifest that names no node",
        "By default the namespace is the node's name. `--mapping destination` takes `spec.destination.name`, `--node NODE` takes one node for all manifests.",
    ),
    (
        "not-a-text",
        "a field that must be text",
        "Put the value in quotes: a bare yes, 1.10 or 2024-01-01 is no text in YAML.",
    ),
    (
        "reserved-kind",
        "a kind of Muster's own",
        "Objects of this kind come from releases and from the control plane alone. Take another kind, one that `sync` of the fleet repo names.",
    ),
    ("duplicate-key", "one key twice in one map", "Readers take the first or the last of them. Leave one."),
    (
        "duplicate-object",
        "one object twice",
        "Two manifests have the same node, kind, namespace and name. The message says where the first one stands.",
    ),
    ("too-deep", "a manifest that is nested too deep", "Flatten it; docs/synchronization.md has the limits."),
];

/// Codes with which the other side of a link would not take an object.
pub const OBJECTS: &[(&str, &str, &str)] = &[
    (
        "kind-not-allowed",
        "the node's release does not synchronize the kind",
        "Which kinds are synchronized with a node is in `sync` of the fleet repo. Name the kind there and publish, or delete the object. Both sides go by the release that the node holds.",
    ),
    (
        "wrong-side",
        "the kind does not come from that side",
        "On a managed node the control plane is the source of objects, on an autonomous one the node is. When the mode changed, delete the objects of the side that is the source no more.",
    ),
    (
        "no-uid",
        "an object without a uid",
        "Without it an object cannot be told from another one that had its name before. The control plane and the agent give one by themselves: what sends such objects is no Muster.",
    ),
    (
        "uid-twice",
        "one uid under two names",
        "A uid is one object. Leave `metadata.uid` out of the copy, or delete the other object.",
    ),
    (
        "uid-mismatch",
        "a deletion of another object than the one that has the name now",
        "A deletion names the uid of the object that ended, and came after a newer object took its name. The newer one stays. A control plane or an agent of Muster sends changes in their order: what sends this is no Muster.",
    ),
    (
        "bad-name",
        "a kind, namespace, name or uid that cannot be one",
        "Kind and namespace have at most 63 bytes, a name 253; lower case letters, digits, `-` and `.` are always good.",
    ),
    (
        "too-large",
        "an object or a file that is too large",
        "An object has at most 1 MiB, a file of manifests 4 MiB, a folder 64 MiB of objects. Split it, or put large contents into files of a module.",
    ),
    (
        "too-many",
        "more than there is room for",
        "docs/synchronization.md has the limits of objects, files and documents. Split the folder or the file, or delete what is not needed.",
    ),
    (
        "digest-mismatch",
        "the content is not what its digest says",
        "It was changed on its way, or one side's store is damaged. It is fetched anew by itself; if it stays, `muster object resync NODE`.",
    ),
    (
        "fails-for-now",
        "it fails again and again, and is still tried",
        "The message says at what: a folder that is gone or full, or a store that cannot be written. Put that right, and it goes on by itself.",
    ),
    (
        "recovery-failed",
        "somebody else changes the object again and again",
        "As often as it was fetched anew, it differed before it could be written. Find out who edits it on the node, and stop that.",
    ),
    (
        "not-writable",
        "the object has no place in the folder",
        "It cannot be written so that it reads the same, or the agent may not write there. Look at the folder's owner and at the file that the message names.",
    ),
    (
        "not-a-file",
        "something else stands where the object's file would be",
        "A directory, a link or a device has the name of the file. Move it away.",
    ),
];
