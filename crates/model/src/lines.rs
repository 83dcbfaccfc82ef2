//! The lines in which two texts differ: the one place where texts are compared line by line.

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// The most pairs of lines between the common head and the common tail of two texts that are compared
/// with each other. The time grows with them at worst: this is some hundredth of a second.
const MAX_PAIRS: usize = 4_000_000;

/// The lines that differ, each with its sign, in the order of the texts. Where more than
/// [`MAX_PAIRS`] pairs would have to be compared, all between the common head and the common tail
/// counts as changed.
pub fn diff_lines(from: &str, to: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (from.lines().collect(), to.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        return signed('-', old).chain(signed('+', new)).collect();
    }
    let mut lines = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, old, new) {
        let (gone, come) = match op {
            DiffOp::Equal { .. } => continue,
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                (op.old_range(), op.new_range())
            }
        };
        lines.extend(signed('-', &old[gone]));
        lines.extend(signed('+', &new[come]));
    }
    lines
}

fn signed<'l>(sign: char, lines: &'l [&str]) -> impl Iterator<Item = String> + 'l {
    lines.iter().map(move |line| format!("{sign}{line}"))
}
