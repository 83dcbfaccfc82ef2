//! The tree of an expression. Every node knows its position and its depth.

use super::predicates::Predicate;
use crate::Value;

/// A node: what it is, where it stands in the source, how deep the tree below it is.
pub(crate) struct ExprNode {
    pub(crate) kind: ExprKind,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Bounded by the parser, so that walking and dropping the tree cannot exhaust a stack.
    pub(crate) depth: usize,
}

pub(crate) enum ExprKind {
    Literal(Value),
    Name(String),
    Attr(Box<ExprNode>, String),
    Index(Box<ExprNode>, Box<ExprNode>),
    List(Vec<ExprNode>),
    Map(Vec<(String, ExprNode)>),
    Not(Box<ExprNode>),
    Negate(Box<ExprNode>),
    And(Box<ExprNode>, Box<ExprNode>),
    Or(Box<ExprNode>, Box<ExprNode>),
    Binary(ExprOp, Box<ExprNode>, Box<ExprNode>),
    If {
        condition: Box<ExprNode>,
        then: Box<ExprNode>,
        otherwise: Box<ExprNode>,
    },
    /// `is defined`, or `is not defined` when negated.
    Defined {
        target: Box<ExprNode>,
        negated: bool,
    },
    /// A filter, or a function that is one; the first argument is its operand.
    Filter {
        filter: super::filters::Filter,
        args: Vec<ExprNode>,
    },
    /// A node-side predicate.
    Predicate {
        predicate: Predicate,
        args: Vec<ExprNode>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExprOp {
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

impl ExprOp {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            ExprOp::Equal => "==",
            ExprOp::NotEqual => "!=",
            ExprOp::Less => "<",
            ExprOp::LessEqual => "<=",
            ExprOp::Greater => ">",
            ExprOp::GreaterEqual => ">=",
            ExprOp::In => "in",
            ExprOp::NotIn => "not in",
            ExprOp::Concat => "~",
            ExprOp::Add => "+",
            ExprOp::Subtract => "-",
            ExprOp::Multiply => "*",
            ExprOp::Divide => "//",
            ExprOp::Modulo => "%",
        }
    }
}

impl ExprNode {
    /// The nodes directly below this one.
    pub(crate) fn children(&self) -> Vec<&ExprNode> {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Name(_) => Vec::new(),
            ExprKind::Attr(a, _)
            | ExprKind::Not(a)
            | ExprKind::Negate(a)
            | ExprKind::Defined { target: a, .. } => vec![a],
            ExprKind::Index(a, b) | ExprKind::And(a, b) | ExprKind::Or(a, b) | ExprKind::Binary(_, a, b) => {
                vec![a, b]
            }
            ExprKind::If { condition, then, otherwise } => vec![condition, then, otherwise],
            ExprKind::List(items)
            | ExprKind::Filter { args: items, .. }
            | ExprKind::Predicate { args: items, .. } => items.iter().collect(),
            ExprKind::Map(entries) => entries.iter().map(|(_, value)| value).collect(),
        }
    }
}
