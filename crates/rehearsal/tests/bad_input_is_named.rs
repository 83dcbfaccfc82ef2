//! ROL-11: what cannot be rehearsed is named.

use rehearsal::{FaultShare, FaultShares, RehearseError, rehearse};
use trust::rollout_terms::WaveMembers;

use crate::fleet::{nodes, rehearsal, shares, terms, wave};

#[test]
fn shares_are_read_exactly() {
    let read = |text: &str| text.parse::<FaultShare>();
    for (text, shown, of_thousand) in [
        ("0%", "0%", 0),
        ("5%", "5%", 50),
        ("0.25%", "0.25%", 3),
        ("0.5%", "0.5%", 5),
        ("0.01%", "0.01%", 1),
        ("12.50%", "12.5%", 125),
        ("100%", "100%", 1000),
    ] {
        let share = read(text).unwrap();
        assert_eq!((share.to_string().as_str(), share.of(1000)), (shown, of_thousand), "{text}");
    }
    for text in
        ["", "%", "5", "101%", "100.01%", "-1%", "5 %", "0.125%", ".5%", "5.%", "1e1%", "99999%", "+5%"]
    {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{text:?} is no share of the nodes")), "{error}");
    }
}

#[test]
fn what_cannot_be_rehearsed_is_named() {
    let none = FaultShares::default();
    let named = |rehearsal| rehearse(&rehearsal).unwrap_err();
    assert_eq!(named(rehearsal(terms(), Vec::new(), none)), RehearseError::NoNode);
    let twice = nodes(3).into_iter().chain(nodes(1)).collect();
    assert_eq!(
        named(rehearsal(terms(), twice, none)).to_string(),
        "node node-00000.example.com is there twice"
    );
    let many = named(rehearsal(terms(), nodes(3), shares("60%", "30%", "0%", "10.01%")));
    assert_eq!(
        many.to_string(),
        "60% fail, 30% are offline and 10.01% are cut off: these are different nodes, and together at most 100%"
    );
    let mut broken = terms();
    broken.waves.push(wave("late", WaveMembers::Percent(50), 0, 100));
    let error = named(rehearsal(broken, nodes(3), none));
    assert_eq!(error.to_string(), "the rollout's terms cannot be gone by");
    assert!(std::error::Error::source(&error).is_some());
}
