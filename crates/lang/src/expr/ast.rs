//! The tree of an expression. Every node knows its place and its depth.

use crate::Value;

/// A node: what it is, where it stands in the source, how deep the tree below it is.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Bounded by the parser, so that walking and dropping the tree cannot exhaust a stack.
    pub(crate) depth: usize,
}

pub(crate) enum Kind {
    Literal(Value),
    Name(String),
    Attr(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Binary(Op, Box<Node>, Box<Node>),
    If {
        condition: Box<Node>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    /// `is defined`, or `is not defined` when negated.
    Defined {
        target: Box<Node>,
        negated: bool,
    },
    /// A filter, or a function that is one; the first argument is its operand.
    Filter {
        filter: super::filters::Filter,
        args: Vec<Node>,
    },
    /// A node-side predicate.
    Predicate {
        predicate: Predicate,
        args: Vec<Node>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predicate {
    FileExists,
    Changed,
    /// `secret("...")`: known, so that its refusal can say more than "unknown".
    Secret,
}

impl Predicate {
    pub(crate) const ALL: [(&'static str, Predicate); 3] = [
        ("changed", Predicate::Changed),
        ("file_exists", Predicate::FileExists),
        ("secret", Predicate::Secret),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Predicate::FileExists => "file_exists",
            Predicate::Changed => "changed",
            Predicate::Secret => "secret",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
    Concat,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Op {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Op::Equal => "==",
            Op::NotEqual => "!=",
            Op::Less => "<",
            Op::LessEqual => "<=",
            Op::Greater => ">",
            Op::GreaterEqual => ">=",
            Op::In => "in",
            Op::NotIn => "not in",
            Op::Concat => "~",
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
            Op::Divide => "//",
            Op::Modulo => "%",
        }
    }
}

impl Node {
    /// The nodes directly below this one.
    pub(crate) fn children(&self) -> Vec<&Node> {
        match &self.kind {
            Kind::Literal(_) | Kind::Name(_) => Vec::new(),
            Kind::Attr(a, _) | Kind::Not(a) | Kind::Negate(a) | Kind::Defined { target: a, .. } => vec![a],
            Kind::Index(a, b) | Kind::And(a, b) | Kind::Or(a, b) | Kind::Binary(_, a, b) => vec![a, b],
            Kind::If { condition, then, otherwise } => vec![condition, then, otherwise],
            Kind::List(items) | Kind::Filter { args: items, .. } | Kind::Predicate { args: items, .. } => {
                items.iter().collect()
            }
            Kind::Map(entries) => entries.iter().map(|(_, value)| value).collect(),
        }
    }
}
