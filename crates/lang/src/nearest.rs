//! [`nearest`]: "did you mean".

/// Names longer than this many characters are not compared.
const MAX_NAME: usize = 64;

/// The candidate that differs least from `name`, if it is near enough to be a typing
/// mistake: at most a third of the name's characters, and at least one, may differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name.chars().collect();
    if wanted.len() > MAX_NAME {
        return None;
    }
    let allowed = (wanted.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean ...?`, or nothing: the tail of a message about an unknown name.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|found| format!("; did you mean `{found}`?")).unwrap_or_default()
}

/// Edit distance where swapping two neighbours counts once.
fn distance(wanted: &[char], candidate: &str) -> usize {
    let other: Vec<char> = candidate.chars().take(2 * MAX_NAME).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in wanted.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && wanted[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_typing_mistakes_and_nothing_else() {
        let names = ["port", "workers", "tls_key"];
        assert_eq!(nearest("prot", names), Some("port"));
        assert_eq!(nearest("worker", names), Some("workers"));
        assert_eq!(nearest("tlskey", names), Some("tls_key"));
        assert_eq!(nearest("zzz", names), None);
    }
}
