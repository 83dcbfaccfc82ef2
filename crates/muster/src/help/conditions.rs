//! What the reasons of a node's synchronization mean: those of [`model::condition::SyncCause`].

/// Reason codes of `muster object status`, `muster node show` and `muster-agent status`.
pub const CONDITIONS: &[(&str, &str, &str)] = &[
    (
        "off",
        "the node's release synchronizes no objects",
        "The fleet repo declares under `sync` which nodes synchronize, in which mode and which kinds. Declare it for the node and publish, if it should.",
    ),
    (
        "never-compared",
        "no link has compared the sets yet",
        "A node in sync is one whose sets a link compared. The agent opens a link when it starts, when its release changes what is synchronized, and when there is something to bring. `muster object resync NODE` asks for one.",
    ),
    (
        "not-compared-since-restart",
        "the last comparison was made before the control plane started",
        "The control plane's data may have been restored from a backup, so that only a comparison since its start counts. It asks each node for a link at its next contact. The message says when the sets were equal last.",
    ),
    (
        "interrupted",
        "the last link ended before the sets were compared",
        "Changes were on their way, or a comparison was under way. The control plane asks for a link at the node's next contact.",
    ),
    (
        "node-late",
        "the node did not call when it was to",
        "The sets were equal when they were compared last; what happened on the node since is not known. Look at the host, its network, and `systemctl status muster-agent` there.",
    ),
    (
        "connecting",
        "a link is open, and the sets are not compared yet",
        "It ends by itself, within seconds. If it stays, the agent's log says what the link does.",
    ),
    (
        "comparing",
        "both sides compare what they have",
        "A resync is under way, or waits until others of the fleet are done. It ends by itself.",
    ),
    ("changes-under-way", "changes are on their way over a link", "The node catches up by itself."),
    (
        "changes-wait-for-contact",
        "changes wait for the node's next contact",
        "The node polls, and takes them when it calls next. `muster node push NODE` does not wait.",
    ),
    (
        "changes-wait-for-node",
        "changes wait for a node that is late",
        "They are kept, and go when the node calls again. Look at the host and its network.",
    ),
    (
        "in-sync",
        "both sets are equal on both sides",
        "A link compared the roots of both sets since the control plane started, and all changes since are acknowledged. The message says when they were compared, and at which revisions.",
    ),
    (
        "objects-rejected",
        "the receiver does not take an object",
        "The message names the first object and its code, which `muster help` explains; `muster object list NODE` has all. Put the object right and apply it again, or delete it.",
    ),
    (
        "held-otherwise",
        "the receiver holds objects otherwise than their source",
        "It rejected them, or keeps them because their deletion is not confirmed. `muster object list NODE` names those that it rejects.",
    ),
    (
        "deletions-unconfirmed",
        "many objects are gone at their source",
        "More objects than the release's `max_delete` are gone at once, so that the receiver keeps them all. If they may go: muster object resync NODE --approve-deletions. If not, put them back at their source.",
    ),
    (
        "no-room",
        "the receiver has no room for objects",
        "A node has at most so many objects, and so many bytes of them, as docs/synchronization.md says. Delete what is not needed.",
    ),
    (
        "resync-without-effect",
        "resyncs do not make the sets equal",
        "The source changes what it said before, or there is a defect. Ask for another with `muster object resync NODE`, and report it if it stays.",
    ),
];
