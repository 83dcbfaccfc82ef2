//! [`nearest`]: "did you mean".

/// Names longer than this many characters are not compared.
const MAX_NAME: usize = 64;

/// The candidate that differs least from `name`, if it is near enough to be a typing
/// mistake: at most a third of the name's characters, and at least one, may differ.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > MAX_NAME {
        return None;
    }
    let allowed = (length / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 4 * MAX_NAME)
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean ...?`, or nothing: the tail of a message about an unknown name.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|found| format!("; did you mean `{found}`?")).unwrap_or_default()
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
