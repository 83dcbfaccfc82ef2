//! The keys that every resource may have, and the names that the format reserves.

/// Keys that every resource may have, with what they hold and do.
pub const COMMON: &[(&str, &str, &str)] = &[
    ("type", "name of a type", "the type, in the long form"),
    ("name", "text", "what the resource is; in the short form it follows from the value"),
    ("id", "name", "a short name for references (`id`, or `module/id` from another module)"),
    ("when", "expression", "skip the resource where it is false; `changed` is true when a notifier changed"),
    ("depends_on", "references", "these must have succeeded first"),
    ("before", "references", "this one comes before them"),
    ("notify", "references", "run these, resources or handlers, when this one changed"),
    ("subscribes", "references", "run this one when one of these changed"),
    ("observe", "bool", "only report what would change"),
    ("on_remove", "`keep`, `delete` or `restore`", "what happens when the resource leaves a node's set"),
    ("sensitive", "bool", "show neither content nor output in plans and reports"),
    ("ignore_failure", "bool", "a failure is reported, but skips no dependent and fails no run"),
    ("timeout", "duration", "kill the resource's commands after this long"),
    (
        "foreach",
        "list, map or expression for one",
        "one resource for each item; its other keys see `item` and `key` (of a list, the number from 0)",
    ),
    ("only_if", "argv list or shell text", "skip the resource unless this command succeeds"),
    ("not_if", "argv list or shell text", "skip the resource when this command succeeds"),
    ("retries", "whole number", "try again this often when it fails"),
    ("retry_delay", "duration", "the time between two tries"),
    ("tags", "names", "names by which a run can be limited to some resources"),
];

/// Types that the format knows and this version does not.
pub const LATER_TYPES: &[&str] = &["git", "firewall", "container", "template"];
