//! The code of every mistake, and what `muster help CODE` says of it.

/// A code and its explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// `E` and three digits. A code keeps its meaning for ever.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Why it is refused, and what to do.
    pub text: &'static str,
}

const fn c(code: &'static str, title: &'static str, text: &'static str) -> Code {
    Code { code, title, text }
}

/// Every code, sorted.
pub const CODES: &[Code] = &[
    c("E001", "not YAML", "The file cannot be read as YAML. What follows the place was not checked."),
    c("E002", "not UTF-8", "Files of a fleet repo that Muster reads are UTF-8 text."),
    c(
        "E003",
        "too large",
        "A file is larger than its kind may be. Split it, or ship it as a file of a module.",
    ),
    c(
        "E004",
        "too deep or too many values",
        "The file nests deeper, or holds more values, than any fleet needs.",
    ),
    c("E005", "a YAML tag", "Tags such as !!int are refused: a value's type is that of its field or param."),
    c(
        "E006",
        "a YAML anchor or alias",
        "Anchors and aliases are refused: a file means what it shows. Share values through vars.",
    ),
    c("E007", "several documents", "One file holds one document."),
    c("E008", "declared twice", "A key or a name stands twice, and only one of the two could hold."),
    c("E009", "a key that is no text", "Keys are plain text."),
    c("E010", "no value", "A key has nothing after it, or null. Absence is written by leaving the key out."),
    c(
        "E012",
        "{{ in YAML",
        "YAML reads {{ x }} as a map in a map. Expressions in YAML are written ${{ x }}.",
    ),
    c(
        "E013",
        "{{ }} in a YAML text",
        "{{ }} is for template files. In YAML it stays as it is; write ${{ }}.",
    ),
    c("E014", "the wrong shape", "A map, a list or a text is needed here, and something else stands there."),
    c("E015", "an unknown key", "The format has no such key at this place."),
    c("E016", "a missing key", "Something that must be said is not."),
    c(
        "E017",
        "a value that does not fit",
        "The value is not of the kind that the field holds: a duration, a share, a bool, a number.",
    ),
    c("E020", "no fleet.yaml", "A fleet repo has a fleet.yaml at its top."),
    c("E021", "a file in no place", "A YAML file lies where nothing reads it; it would say nothing."),
    c("E022", "an unknown format", "The file is of a format that this version does not read."),
    c(
        "E023",
        "not a name",
        "Names are short and plain, so that they can stand in paths, expressions and reports.",
    ),
    c("E024", "not in this version", "The format knows this, and this version of Muster does not have it."),
    c("E030", "not a pattern", "A pattern is an exact name, a glob (*, **, ?) or a /regular expression/."),
    c(
        "E031",
        "taken by an earlier pattern",
        "The first match classifies a node, so this entry would never be reached.",
    ),
    c("E032", "named twice", "A node has one entry."),
    c("E033", "a host file for no node", "No entry matches the hostname, so the file says nothing."),
    c(
        "E034",
        "not a hostname",
        "Hostnames are lower-case letters, digits and hyphens, in parts between dots.",
    ),
    c("E035", "matched and excepted", "One entry both names a node and excepts it."),
    c("E040", "an unknown role", "Roles are files in roles/."),
    c("E041", "an unknown module", "Modules are folders in modules/ with a module.yaml."),
    c("E042", "an unknown environment", "Environments are declared in environments.yaml or environments/."),
    c("E043", "an unknown channel, or none", "Channels are declared in fleet.yaml; every node is in one."),
    c("E044", "an unknown var", "A var is MODULE.PARAM, and the module declares the param."),
    c("E045", "a var that does nothing", "The nodes it is set for do not have the module."),
    c(
        "E046",
        "roles that disagree",
        "Two roles of one node set the same var differently, and neither is the later one by right.",
    ),
    c("E047", "a required param", "A module needs the param, and nothing sets it for the node."),
    c("E048", "a value of the wrong type", "The value is not what the param's type says."),
    c("E049", "a param's declaration", "The declaration contradicts itself."),
    c("E050", "a secret", "This version has no secret provider, so nothing can be done with a secret."),
    c("E051", "excluded and needed", "A module is excluded, and another one of the node depends on it."),
    c("E060", "not an expression", "The text between ${{ and }}, or after when: or where:, cannot be read."),
    c(
        "E061",
        "an unknown name",
        "An expression uses a name that is not there. An undefined name is an error, never false.",
    ),
    c(
        "E062",
        "known only on the node",
        "A predicate such as file_exists() can stand only in when: of a resource or module.",
    ),
    c(
        "E063",
        "declared, not computed",
        "What a node is (its roles, its groups, its modules) is declared. Observed traits tune vars, nothing else.",
    ),
    c("E064", "a condition that fails", "The condition of a group cannot be evaluated for some node."),
    c("E070", "an unknown type", "There is no such resource type."),
    c("E071", "an unknown attribute", "The resource type has no such attribute."),
    c("E072", "a value of the wrong kind", "The attribute does not hold such a value."),
    c("E073", "a missing attribute", "The resource type needs it."),
    c("E074", "attributes that exclude each other", "Only one of them can hold."),
    c(
        "E075",
        "a command without a guard",
        "It would run every time. creates, unless, onlyif or always: true say when it should.",
    ),
    c("E076", "not an octal mode", "Modes are octal, such as \"0644\"."),
    c("E077", "not a regular expression", "The expression does not compile within its limits."),
    c(
        "E080",
        "a reference to nothing",
        "References name an id, a name, type:name, or module/id; they mean exactly one resource.",
    ),
    c(
        "E081",
        "said from both sides",
        "notify and subscribes, or before and depends_on, say the same of one pair.",
    ),
    c("E082", "resources in a circle", "They wait for each other, so none could begin."),
    c("E083", "modules in a circle", "They wait for each other, so none could begin."),
    c(
        "E084",
        "one thing declared twice",
        "Two declarations of one path, or of one name of a type, that are not alike.",
    ),
    c("E085", "an id twice", "An id is unique in its module."),
    c(
        "E086",
        "notifying what came before",
        "The module of the target has already run when the notification comes.",
    ),
    c(
        "E087",
        "a reference that cannot be",
        "Handlers run at the end of their module, in their own order; nothing waits for them.",
    ),
    c(
        "E088",
        "a module that is not needed",
        "A reference into another module needs that module in depends_on, so that it is on the node.",
    ),
    c("E089", "changed that is never true", "changed asks whether a notifier changed, and there is none."),
    c("E090", "a template that is not there", "template: names a file below the module's templates/."),
    c("E091", "not a template", "The template's body cannot be read."),
    c("E092", "a file that is not there", "source: names a file below files/, script: one below executors/."),
    c(
        "E093",
        "a command that cannot be delegated",
        "A delegated command names its program by an absolute path. Each argument is a pattern of its own: * is any text without a slash, ** alone at the end stands for any further arguments. No shell runs it.",
    ),
    c(
        "E094",
        "an action that cannot be delegated",
        "An action is one program with fixed arguments; {name} as a whole argument stands for a value that must match the pattern under args. Each {name} is declared, and each declared one is used.",
    ),
    c(
        "E095",
        "a query that cannot be delegated",
        "There are traits, processes, listeners, disks, and file with patterns of absolute paths, where * stops at a slash and ** does not.",
    ),
    c(
        "E096",
        "a kind that cannot be synchronized",
        "Kinds are plain names such as Application. Muster's own kinds count only under a release's signature or from the control plane, so they are never synchronized.",
    ),
    c(
        "E097",
        "a folder that cannot be synchronized",
        "In a synchronized folder files come and go by what the other side says, so it is a folder of its own: not the root, not one of the system's, not one that others share.",
    ),
    c(
        "E098",
        "an action declared twice",
        "All delegations of a node count together, and two of them give one action different meanings.",
    ),
    c("E099", "too many", "There are more of these than a fleet may have, or more mistakes than are shown."),
];

/// What a code means.
pub fn explain(code: &str) -> Option<&'static Code> {
    CODES.iter().find(|known| known.code.eq_ignore_ascii_case(code))
}
